// The access stream: a few words for each operator's accesses at the operator's end, and a few when a block
// dies or the program sets a mark. event.h defines the encoding. Each thread writes into a ring of its own,
// without a lock. Two kinds of readers exist:
//   - The thread itself reads the result of operation() at once. Plans are made from it
//     (PlanExecutor::follow).
//   - When a record ends, all threads' events are read in the order in which they happened (Merged). The text
//     for reports and `innkeeper replay` is made from them (recorder.h).
//
// A record in progress loses no event: a full ring is emptied (ring.h). A record has a limit of events; those
// beyond it are counted. Words that only the thread itself reads are overwritten.
//
// When a thread ends, its ring stays with the stream, with the words in it, and is given to a later thread.
// The ring of a thread that writes while its thread-local objects are destroyed is never shared.
//
// A child of fork() must not call the stream. The end of the child's thread does not touch the stream either.
//
// Thread safety: all methods. While no record is in progress, it costs only on().
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
  // Words of one thread's ring: some thousand operators.
  static constexpr size_t kRingWords = size_t{1} << 15;

  explicit Stream(size_t ring_words = kRingWords);

  // ---- Writing.
  // Returns whether a record is in progress. Code that writes only for a record calls it first.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  OperatorName name(std::string_view name);
  // `each(i)` returns RecordedAccess number i. The returned event is valid until this thread writes again.
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

  // ---- Records.
  // Starts a record of up to `most` events. Discards a record in progress.
  void start(size_t most) IK_EXCLUDES(mutex_);
  // Ends the record. Events that other threads are writing meanwhile may be missing.
  Merged stop() IK_EXCLUDES(mutex_);
  // Names by OperatorName. They live as long as the stream does.
  std::vector<std::string_view> names() const IK_EXCLUDES(mutex_);
  size_t rings() const IK_EXCLUDES(mutex_);

 private:
  struct Thread {
    explicit Thread(size_t ring_words) : ring(ring_words) {}
    Ring ring;
    std::unordered_map<std::string_view, OperatorName> names;  // Names that it has used.
    std::shared_ptr<const ThreadLife> life;                    // Guarded by Stream::mutex_.
  };

  // The running thread's ring in the stream that it wrote to last. An ending thread searches for a ring
  // again: its former one may be another thread's already.
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

  const uint64_t id_;  // Id of the stream in this process.
  const size_t ring_words_;
  std::atomic<bool> on_{false};
  std::atomic<uint64_t> next_{1};  // Ordinal of the next event.
  std::atomic<uint64_t> end_{0};   // Ordinal of the first event beyond the record's limit.

  mutable Mutex mutex_;
  uint64_t first_ IK_GUARDED_BY(mutex_) = 0;  // Ordinal of the record's first event.
  std::vector<std::unique_ptr<Thread>> threads_ IK_GUARDED_BY(mutex_);
  std::deque<std::string> names_ IK_GUARDED_BY(mutex_);
  std::unordered_map<std::string_view, OperatorName> known_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper::trace
