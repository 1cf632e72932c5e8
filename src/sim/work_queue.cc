#include "sim/work_queue.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace innkeeper::sim {
namespace {

// Notified whenever a queue stops running. One for the process: waiting for another thread's copy is rare.
CondVar stopped_running;

// Kernels that the host may launch ahead: CUDA blocks a launch after some 1,024 pending ones.
constexpr size_t kMostLaunched = 1024;

bool overlap(const void* a, size_t a_size, const void* b, size_t b_size) {
  const auto first = reinterpret_cast<uintptr_t>(a);
  const auto second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_size && second < first + a_size;
}

}  // namespace

bool SimEvent::passed() const { return queue_->passed(position_); }

bool SimEvent::done() {
  if (passed()) return !queue_->is_early(position_);
  if (!polled_.exchange(true, std::memory_order_relaxed)) return false;
  queue_->advance(position_);
  return true;
}

Status SimEvent::synchronize() {
  queue_->advance(position_);
  queue_->host_saw(time_);
  return Status::okay();
}

Hidden::Hidden(std::shared_ptr<Arena> arena, WrittenRange range, bool poison)
    : arena_(std::move(arena)), range_(range), bytes_(nullptr) {
  Result<Arena::Piece> piece = arena_->allocate(Bytes(static_cast<int64_t>(range.size)));
  IK_CHECK(piece.ok(),
           "the simulator needs host memory to hide what a kernel wrote; INNKEEPER_SIM=early hides nothing");
  bytes_ = piece.value().data;
  std::memcpy(bytes_, range.data, range.size);
  if (poison) std::memset(range.data, kPoison, range.size);
}

Hidden::Hidden(Hidden&& other) noexcept
    : arena_(std::move(other.arena_)),
      range_(other.range_),
      bytes_(std::exchange(other.bytes_, nullptr)),
      fate_(other.fate_) {}

Hidden::~Hidden() {
  if (bytes_ != nullptr) arena_->free(bytes_);
}

void Hidden::publish() {
  if (fate_ == Fate::poison) {
    std::memset(range_.data, kPoison, range_.size);
  } else if (fate_ == Fate::bytes) {
    std::memcpy(range_.data, bytes_, range_.size);
  }
  arena_->free(std::exchange(bytes_, nullptr));
}

bool Item::touches(const void* data, size_t size) const {
  if (copy.size > 0 &&
      (overlap(copy.destination, copy.size, data, size) || overlap(copy.source, copy.size, data, size))) {
    return true;
  }
  return std::any_of(results.begin(), results.end(), [&](const Hidden& hidden) {
    return overlap(hidden.range().data, hidden.range().size, data, size);
  });
}

void Item::execute() {
  for (Hidden& hidden : results) hidden.publish();
  if (copy.size > 0) std::memmove(copy.destination, copy.source, copy.size);
}

double WorkQueue::start() const { return std::max(time_, host_->seen); }

std::shared_ptr<SimEvent> WorkQueue::push(Item item, double seconds) {
  MutexLock lock(machine_mutex);
  double end = start() + seconds;
  busy_ += seconds;
  if (item.wait != nullptr && item.in_time) end = std::max(end, item.wait->time());
  came_to(end);
  items_.push_back(std::move(item));
  const Position position = enqueued_.load(std::memory_order_relaxed) + 1;
  enqueued_.store(position, std::memory_order_relaxed);
  return std::make_shared<SimEvent>(shared_from_this(), position, time_);
}

void WorkQueue::spend(double seconds, double not_before) {
  MutexLock lock(machine_mutex);
  came_to(std::max(start(), not_before) + seconds);
  busy_ += seconds;
}

std::shared_ptr<SimEvent> WorkQueue::tail() {
  MutexLock lock(machine_mutex);
  return std::make_shared<SimEvent>(shared_from_this(), enqueued_.load(std::memory_order_relaxed), time_);
}

void WorkQueue::came_to(double time) {
  time_ = time;
  if (computes_) host_->kernels = time;
}

void WorkQueue::publish() {
  advance();
  MutexLock lock(machine_mutex);
  const double now = std::max(host_->seen, host_->kernels);
  std::erase_if(published_, [now](const Published& each) { return each.time <= now; });
  published_.push_back({enqueued_.load(std::memory_order_relaxed), time_});
  any_published_.store(true, std::memory_order_relaxed);
}

bool WorkQueue::is_early(Position position) const {
  if (!any_published_.load(std::memory_order_relaxed)) return false;
  MutexLock lock(machine_mutex);
  const double now = std::max(host_->seen, host_->kernels);
  return std::any_of(published_.begin(), published_.end(),
                     [&](const Published& each) { return each.position == position && each.time > now; });
}

void WorkQueue::finish_front() {
  items_.pop_front();
  executed_.store(executed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void WorkQueue::advance(Position position) {
  if (passed(position)) return;
  // An explicit stack: a chain of waits may be as long as all pending work.
  struct Goal {
    std::shared_ptr<WorkQueue> queue;
    Position position;
  };
  std::vector<Goal> goals;
  goals.push_back({shared_from_this(), position});
  MutexLock lock(machine_mutex);
  while (!goals.empty()) {
    const std::shared_ptr<WorkQueue> queue = goals.back().queue;
    if (queue->passed(goals.back().position)) {
      goals.pop_back();
      continue;
    }
    if (queue->running_) {
      stopped_running.wait(machine_mutex);
      continue;
    }
    IK_CHECK(!queue->items_.empty(), "an event lies behind the end of its queue");
    Item& item = queue->items_.front();
    if (item.wait != nullptr && !item.wait->passed()) {
      goals.push_back({item.wait->queue(), item.wait->position()});
      continue;
    }
    if (item.wait == nullptr) {
      queue->running_ = true;  // Other threads may push to the queue meanwhile: a deque does not move `item`.
      lock.unlock();
      item.execute();
      lock.lock();
      queue->running_ = false;
    }
    queue->finish_front();
    stopped_running.notify_all();
  }
}

void WorkQueue::advance_past(const void* data, size_t size, bool spoil) {
  if (idle()) return;
  const auto* start = static_cast<const std::byte*>(data);
  const auto within = [&](const Hidden& hidden) {
    const auto* first = static_cast<const std::byte*>(hidden.range().data);
    return start <= first && first + hidden.range().size <= start + size;
  };
  Position position = 0;
  {
    MutexLock lock(machine_mutex);
    position = enqueued_.load(std::memory_order_relaxed);
    for (auto item = items_.rbegin(); item != items_.rend(); ++item, --position) {
      if (item->wait != nullptr) break;
      if (!item->touches(data, size)) continue;
      const bool running = running_ && &*item == &items_.front();
      if (!spoil || running || item->copy.size > 0) break;
      if (!std::all_of(item->results.begin(), item->results.end(), [&](const Hidden& hidden) {
            return within(hidden) || !overlap(hidden.range().data, hidden.range().size, data, size);
          })) {
        break;
      }
      for (Hidden& hidden : item->results) {
        if (within(hidden)) hidden.spoil();
      }
    }
  }
  advance(position);
}

void WorkQueue::poison(void* data, size_t size) {
  {
    MutexLock lock(machine_mutex);
    while (running_ && items_.front().touches(data, size)) stopped_running.wait(machine_mutex);
    if (std::any_of(items_.begin(), items_.end(),
                    [&](const Item& item) { return item.touches(data, size); })) {
      std::memset(data, kPoison, size);  // No copy begins meanwhile.
      return;
    }
  }
  std::memset(data, kPoison, size);
}

void WorkQueue::forget_spoiled(const void* data, size_t size) {
  if (idle()) return;
  MutexLock lock(machine_mutex);
  while (running_ && items_.front().touches(data, size)) stopped_running.wait(machine_mutex);
  for (Item& item : items_) {
    for (Hidden& hidden : item.results) {
      if (hidden.spoiled() && overlap(hidden.range().data, hidden.range().size, data, size)) hidden.forget();
    }
  }
}

void WorkQueue::host_saw(double time) {
  MutexLock lock(machine_mutex);
  host_->seen = std::max(host_->seen, time);
}

void WorkQueue::launch(double seconds) {
  MutexLock lock(machine_mutex);
  // The end of the preceding kernel is known now.
  std::vector<double>& ends = host_->ends;
  if (ends.size() < kMostLaunched) ends.resize(kMostLaunched);
  ends[host_->launched++ % kMostLaunched] = host_->kernels;
  host_->seen = std::max(host_->seen + seconds, ends[host_->launched % kMostLaunched]);
}

double WorkQueue::host_time() const {
  MutexLock lock(machine_mutex);
  return host_->seen;
}

double WorkQueue::time() const {
  MutexLock lock(machine_mutex);
  return time_;
}

double WorkQueue::busy() const {
  MutexLock lock(machine_mutex);
  return busy_;
}

}  // namespace innkeeper::sim
