// Converts numbers of a row to their meaning. A damaged database may contain any number. An unknown
// value of an enumeration becomes its last one, and a number is clamped to its range, so that
// readers need no checks. Internal.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lease/request.h"
#include "queue/job.h"

namespace innkeeper::queue {

inline constexpr int kMostCounted = 1'000'000'000;  // Largest count of attempts, slots, GPUs and the like.
// Longest time, ms: a century, so that sums with a clock do not overflow.
inline constexpr int64_t kMostMs = 100LL * 365 * 86'400'000;

inline State state_of(int64_t value) {
  return value >= 0 && value <= static_cast<int64_t>(State::interrupted) ? static_cast<State>(value)
                                                                         : State::interrupted;
}
inline How how_of(int64_t value) {
  return value >= 0 && value <= static_cast<int64_t>(How::unknown) ? static_cast<How>(value) : How::unknown;
}
inline lease::By by_of(int64_t value) {
  return value >= 0 && value <= static_cast<int64_t>(lease::By::utilization) ? static_cast<lease::By>(value)
                                                                             : lease::By::free;
}
inline int count_of(int64_t value) { return static_cast<int>(std::clamp<int64_t>(value, 0, kMostCounted)); }
inline int number_of(int64_t value) {
  return static_cast<int>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
}
inline int64_t time_of(int64_t value) { return std::max<int64_t>(value, 0); }
inline Bytes bytes_of(int64_t value) { return Bytes(std::max<int64_t>(value, 0)); }

}  // namespace innkeeper::queue
