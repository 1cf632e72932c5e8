#include "trace/stream.h"

#include <algorithm>
#include <utility>

#include "base/test_point.h"

namespace innkeeper::trace {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> streams{0};
  return ++streams;
}

}  // namespace

constinit thread_local Stream::Mine Stream::last_used_;

Stream::Stream(size_t ring_words) : id_(next_id()), ring_words_(ring_words) {
  names_.emplace_back();  // Name 0 is no operator's.
}

// ---------------------------------------------------------------- Writing

Stream::Thread& Stream::mine() {
  if (last_used_.stream == id_ && last_used_.ending == thread_is_ending) [[likely]]
    return *last_used_.thread;
  return find_mine();
}

Stream::Thread& Stream::find_mine() {
  std::shared_ptr<const ThreadLife> life = thread_life();
  const MutexLock lock(mutex_);
  Thread& thread = give_ring(std::move(life));
  last_used_ = {id_, thread_is_ending, &thread};
  return thread;
}

Stream::Thread& Stream::give_ring(std::shared_ptr<const ThreadLife> life) {
  const auto owned = [&](const auto& thread) { return life != nullptr && thread->life == life; };
  const auto left = [](const auto& thread) {
    return thread->life != nullptr && thread->life->over.load(std::memory_order_acquire);
  };
  auto found = std::find_if(threads_.begin(), threads_.end(), owned);
  if (found == threads_.end() && life != nullptr)
    found = std::find_if(threads_.begin(), threads_.end(), left);
  if (found == threads_.end()) {
    threads_.push_back(std::make_unique<Thread>(ring_words_));
    found = std::prev(threads_.end());
  }
  (*found)->life = std::move(life);
  return **found;
}

// Returns an event's ordinal in the record; 0 if it is in none. Requires: the ring is selected already. While
// a thread searches for one, another thread may write a later event and leave its own ring, which would then
// go back in time.
uint64_t Stream::next_order() {
  if (!on_.load(std::memory_order_acquire)) return 0;
  reach("order");
  // A thread whose ordinal is in a record sees the writes of start() before it, and so omits no later event.
  const uint64_t order = next_.fetch_add(1, std::memory_order_acquire);
  return order < end_.load(std::memory_order_relaxed) ? order : 0;
}

OperatorName Stream::name(std::string_view name) {
  Thread& thread = mine();
  if (const auto known = thread.names.find(name); known != thread.names.end()) [[likely]]
    return known->second;
  const MutexLock lock(mutex_);
  auto found = known_.find(name);
  if (found == known_.end()) {
    const bool last = names_.size() + 1 == kMostNames;  // The last name stands for all further ones.
    if (names_.size() == kMostNames) return OperatorName{kMostNames - 1};
    const std::string_view kept = names_.emplace_back(last ? "others" : name);
    found = known_.emplace(kept, OperatorName{static_cast<uint32_t>(names_.size() - 1)}).first;
  }
  thread.names.insert(*found);
  return found->second;
}

void Stream::freed(BlockId block) {
  if (!on()) return;
  Ring& ring = mine().ring;
  const uint64_t order = next_order();
  if (order == 0) return;
  write_freed(ring.begin(words_of_freed()), order, block);
  ring.end(true);
}

void Stream::mark(std::string_view text) {
  if (!on()) return;
  Ring& ring = mine().ring;
  const uint64_t order = next_order();
  if (order == 0) return;
  write_mark(ring.begin(words_of_mark(text)), order, text);
  ring.end(true);
}

// ---------------------------------------------------------------- Records

void Stream::start(size_t most) {
  const MutexLock lock(mutex_);
  on_.store(false, std::memory_order_relaxed);
  for (const auto& thread : threads_) thread->ring.take();
  const uint64_t next = next_.load(std::memory_order_relaxed);
  end_.store(next + std::min<uint64_t>(most, UINT64_MAX / 2), std::memory_order_relaxed);
  on_.store(true, std::memory_order_release);
  reach("record");
  // Read after `on_` is set: a thread that saw the previous record in progress may take its event's ordinal
  // only now. If that ordinal were in this record, the thread's next event would be omitted if `on_` were
  // still false then.
  first_ = next_.fetch_add(0, std::memory_order_acq_rel);
}

Merged Stream::stop() {
  const MutexLock lock(mutex_);
  if (!on_.exchange(false, std::memory_order_relaxed)) return Merged(0, 0);
  const uint64_t end = end_.load(std::memory_order_relaxed);
  const uint64_t next = next_.load(std::memory_order_relaxed);
  Merged events(first_, next > end ? next - end : 0);
  for (const auto& thread : threads_) events.add(thread->ring.take());
  return events;
}

std::vector<std::string_view> Stream::names() const {
  const MutexLock lock(mutex_);
  return {names_.begin(), names_.end()};
}

size_t Stream::rings() const {
  const MutexLock lock(mutex_);
  return threads_.size();
}

}  // namespace innkeeper::trace
