#include "trace/ring.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "trace/event.h"

namespace innkeeper::trace {

Ring::Ring(size_t capacity)
    : capacity_(capacity), ring_(std::make_unique_for_overwrite<uint64_t[]>(capacity)), end_(capacity) {
  IK_CHECK(std::has_single_bit(capacity) && capacity >= 8, "no size of a ring");
}

uint64_t* Ring::find(size_t words) {
  const size_t at = next_ % capacity_;
  const size_t gap = at + words > capacity_ ? capacity_ - at : 0;
  if (next_ + gap + words > end_) return nullptr;
  if (gap != 0) write_gap(&ring_[at], gap);
  next_ += gap;
  return &ring_[next_ % capacity_];
}

uint64_t* Ring::make_room(size_t words) {
  if (words > capacity_ / 2) {
    large_.resize(words);
    return large_.data();
  }
  {
    const MutexLock lock(mutex_);
    empty(wanted_);
    end_ = tail_ + capacity_;
  }
  wanted_ = false;
  return find(words);  // The words and their gap are less than twice as many, so they fit.
}

void Ring::keep_large() {
  if (!wanted_) return;
  const MutexLock lock(mutex_);
  empty(true);
  end_ = tail_ + capacity_;
  kept_.push_back(large_);
  wanted_ = false;
}

void Ring::empty(bool keep) {
  const uint64_t head = head_.load(std::memory_order_acquire);
  while (tail_ != head) {
    const size_t at = tail_ % capacity_;
    const size_t count = std::min<size_t>(head - tail_, capacity_ - at);
    if (keep) kept_.emplace_back(&ring_[at], &ring_[at] + count);
    tail_ += count;
  }
}

std::vector<Words> Ring::take() {
  const MutexLock lock(mutex_);
  empty(true);
  return std::exchange(kept_, {});
}

}  // namespace innkeeper::trace
