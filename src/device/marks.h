// Events of one queue by the work that they cover. Each piece of work on the queue has a number, none smaller
// than the ones before; an event covers all work up to a number. A thread that waits for some work finds the
// first event that covers it.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "device/device_api.h"

namespace innkeeper {

class Marks {
 public:
  void add(uint64_t covers, Event event) {
    const auto place =
        std::upper_bound(marks_.begin(), marks_.end(), covers,
                         [](uint64_t wanted, const Mark& mark) { return wanted < mark.covers; });
    marks_.insert(place, {covers, std::move(event)});
    if (marks_.size() > kKept) marks_.pop_front();
  }
  // Returns the first event after which all work up to this number is done; null if none is known.
  Event find(uint64_t number) const {
    const auto found =
        std::lower_bound(marks_.begin(), marks_.end(), number,
                         [](const Mark& mark, uint64_t wanted) { return mark.covers < wanted; });
    return found == marks_.end() ? nullptr : found->event;
  }
  // Returns the number up to which all work is known to be done.
  uint64_t passed() const {
    const auto first = std::partition_point(marks_.begin(), marks_.end(),
                                            [](const Mark& mark) { return is_done(mark.event); });
    return first == marks_.begin() ? 0 : std::prev(first)->covers;
  }

 private:
  struct Mark {
    uint64_t covers;
    Event event;  // Never null.
  };
  static constexpr size_t kKept = 128;  // Older stamps are covered by the first mark.

  std::deque<Mark> marks_;  // Ascending by `covers`.
};

}  // namespace innkeeper
