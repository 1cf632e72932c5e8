// The words that one thread has written last: bounded, without a lock. Where it is full the producer itself
// empties it, under the ring's mutex, once in some thousand events: what a record wants is kept in pieces
// until somebody takes them, the rest is let go.
//
// An event stands in one piece. One of more words than half of the ring stands beside it.
//
// Thread safety: begin(), end() and last() by the producer, one thread at a time; take() by any thread,
// meanwhile too.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_annotations.h"

namespace innkeeper::trace {

using Words = std::vector<uint64_t>;

class Ring {
 public:
  explicit Ring(size_t capacity);  // a power of two, 8 at least

  // Room for an event of so many words. What last() gave is gone.
  uint64_t* begin(size_t words) {
    uint64_t* const place = words <= capacity_ / 2 ? find(words) : nullptr;
    words_ = words;
    return last_ = place != nullptr ? place : make_room(words);
  }
  // The event is there for those who take; `recorded`: it must not be let go.
  void end(bool recorded) {
    wanted_ = wanted_ || recorded;
    if (words_ > capacity_ / 2) [[unlikely]]
      return keep_large();
    next_ += words_;
    head_.store(next_, std::memory_order_release);
  }
  std::span<const uint64_t> last() const { return {last_, words_}; }

  // All that was kept and what the ring has, in the order in which it was written. It has nothing after that.
  std::vector<Words> take() IK_EXCLUDES(mutex_);

 private:
  uint64_t* find(size_t words);
  uint64_t* make_room(size_t words) IK_EXCLUDES(mutex_);
  void keep_large() IK_EXCLUDES(mutex_);
  void empty(bool keep) IK_REQUIRES(mutex_);

  const size_t capacity_;
  const std::unique_ptr<uint64_t[]> ring_;
  std::atomic<uint64_t> head_{0};  // words written so far, gaps among them
  // The producer's own:
  uint64_t next_ = 0;  // words written so far and the gap before the next event
  uint64_t end_;       // up to which there is room
  uint64_t* last_ = nullptr;
  size_t words_ = 0;     // from there on
  bool wanted_ = false;  // the ring has words of a record
  Words large_;

  Mutex mutex_;
  uint64_t tail_ IK_GUARDED_BY(mutex_) = 0;  // words that were taken, kept or let go
  std::vector<Words> kept_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper::trace
