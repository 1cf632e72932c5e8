// The access stream: at each operator's end a few words of what it touched,
// and a few where a block dies or the program sets a mark. event.h says how they are written. Each thread
// writes into a ring of its own, without a lock; who reads does so
//   - at once, on the thread itself: what operation() returns. So plans are made (PlanExecutor::follow).
//   - when a record ends: of all threads, in the order in which it happened (Merged). So is the text that
//     reports and `innkeeper replay` read (recorder.h).
//
// While a record is made nothing of it is lost: a ring that is full is emptied (ring.h). A record ends at so
// many events: those beyond are counted. What only the thread itself reads is written over.
//
// A thread's ring stays with the stream when it ends, with the words in it, and goes to a thread that begins
// later; that of a thread which writes while its thread-local objects go is nobody else's.
//
// A child of fork() has no use for the stream: nothing of it may be called there, and nothing is done to it
// when the child's thread ends.
//
// Thread safety: all methods. While no record is made on() is all that it costs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/thread_annotations.h"
#include "base/thread_life.h"
#include "trace/event.h"
#include "trace/merged.h"
#include "trace/ring.h"

namespace innkeeper::trace {

class Stream {
 public:
  static constexpr size_t kRingWords = size_t{1} << 15;  // of a thread: some thousand operators

  explicit Stream(size_t ring_words = kRingWords);

  // ---- writing
  // Is a record being made? Whoever writes for a record alone asks first.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  OperatorName name(std::string_view name);
  // `each(i)` is the RecordedAccess that is number i. What it returns can be read until this thread writes
  // again.
  template <class Each>
  Event operation(const Operation& what, NodeId node, size_t accesses, const Each& each) {
    Ring& ring = mine().ring;
    uint64_t* const to = ring.begin(words_of_operation(what, accesses));
    const uint64_t order = what.name == OperatorName{0} ? 0 : next_order();
    write_operation(to, order, node, what, accesses, each);
    ring.end(order != 0);
    std::span<const uint64_t> words = ring.last();
    Event event;
    read_event(words, event);
    return event;
  }
  void freed(BlockId block);
  void mark(std::string_view text);

  // ---- records
  // From now on events are recorded, `most` of them. Forgets a record that is being made.
  void start(size_t most) IK_EXCLUDES(mutex_);
  // Ends the record. Events that other threads are writing meanwhile may be missing.
  Merged stop() IK_EXCLUDES(mutex_);
  // By OperatorName. They live as long as the stream does.
  std::vector<std::string_view> names() const IK_EXCLUDES(mutex_);
  size_t rings() const IK_EXCLUDES(mutex_);

 private:
  struct Thread {
    explicit Thread(size_t ring_words) : ring(ring_words) {}
    Ring ring;
    std::unordered_map<std::string_view, OperatorName> names;  // that it has used
    std::shared_ptr<const ThreadLife> life;                    // guarded by Stream::mutex_
  };

  // The thread that is running, as the stream that it wrote to last knows it. While it ends it looks for a
  // ring again: the one that it had may be another's already.
  struct Mine {
    uint64_t stream = 0;
    bool ending = false;
    Thread* thread = nullptr;
  };
  static constinit thread_local Mine last_used_;

  Thread& mine();
  Thread& find_mine() IK_EXCLUDES(mutex_);
  Thread& give_ring(std::shared_ptr<const ThreadLife> life) IK_REQUIRES(mutex_);
  uint64_t next_order();

  const uint64_t id_;  // of the stream, in this process
  const size_t ring_words_;
  std::atomic<bool> on_{false};
  std::atomic<uint64_t> next_{1};  // event
  std::atomic<uint64_t> end_{0};   // the first that the record has no room for

  mutable Mutex mutex_;
  uint64_t first_ IK_GUARDED_BY(mutex_) = 0;  // event of the record
  std::vector<std::unique_ptr<Thread>> threads_ IK_GUARDED_BY(mutex_);
  std::deque<std::string> names_ IK_GUARDED_BY(mutex_);
  std::unordered_map<std::string_view, OperatorName> known_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper::trace
