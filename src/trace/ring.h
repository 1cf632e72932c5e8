// The last words that one thread has written: bounded, without a lock. When the ring is full the producer
// itself empties it, under the ring's mutex, once in some thousand events. Words of a record are kept in
// pieces until a reader takes them; the others are discarded.
//
// An event is contiguous. One with more words than half of the ring is stored outside it.
//
// Thread safety: begin(), end() and last() by the producer, one thread at a time; take() by any
// thread, concurrently.
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
  explicit Ring(size_t capacity);  // A power of two, 8 at least.

  // Returns space for an event of `words` words. Invalidates the result of last().
  uint64_t* begin(size_t words) {
    uint64_t* const place = words <= capacity_ / 2 ? find(words) : nullptr;
    words_ = words;
    return last_ = place != nullptr ? place : make_room(words);
  }
  // Publishes the event to readers; `recorded`: it must not be discarded.
  void end(bool recorded) {
    wanted_ = wanted_ || recorded;
    if (words_ > capacity_ / 2) [[unlikely]]
      return keep_large();
    next_ += words_;
    head_.store(next_, std::memory_order_release);
  }
  std::span<const uint64_t> last() const { return {last_, words_}; }

  // Returns all kept words and the ring's contents, in the order of writing, and leaves the ring empty.
  std::vector<Words> take() IK_EXCLUDES(mutex_);

 private:
  uint64_t* find(size_t words);
  uint64_t* make_room(size_t words) IK_EXCLUDES(mutex_);
  void keep_large() IK_EXCLUDES(mutex_);
  void empty(bool keep) IK_REQUIRES(mutex_);

  const size_t capacity_;
  const std::unique_ptr<uint64_t[]> ring_;
  std::atomic<uint64_t> head_{0};  // Number of words written so far, including gaps.
  // The following fields belong to the producer.
  uint64_t next_ = 0;  // Number of words written so far, including the gap before the next event.
  uint64_t end_;       // Position up to which there is space.
  uint64_t* last_ = nullptr;
  size_t words_ = 0;     // Number of words from `last_` on.
  bool wanted_ = false;  // True: the ring has words of a record.
  Words large_;

  Mutex mutex_;
  uint64_t tail_ IK_GUARDED_BY(mutex_) = 0;  // Number of words that were taken, kept or discarded.
  std::vector<Words> kept_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper::trace
