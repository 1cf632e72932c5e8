// Simulates a period by one schedule, to choose between schedules. Its time is not in seconds.
//
// Kernels run one after the other, each for what Uses::touched says of its step: the bytes that stand for its
// seconds, or, where these are unknown, the bytes that it touches. It starts after the host has launched it
// (two_clocks.h). One link copies blocks in, in the order of their moves; another copies blocks out. A kernel
// waits for its operands, and for the space that copies out have not freed yet; so does a copy in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/gaps.h"

namespace innkeeper::plan {

// Bytes that a link could have moved in the latency of a copy.
inline constexpr double kLatency = 512 << 10;

struct PlannedTrip {
  int64_t after = 0;     // starts after this step of the period
  bool arrives = false;  // else it leaves
  size_t gap = 0;        // Index in Uses::gaps.
  int64_t periods = 0;   // Periods between the birth of the block and the start of the move.
};

// In bytes that kernels touch. `trips`: by step, in the order in which they start. `spare`: free bytes by
// step, where copies take no time.
double period_time(const Uses& uses, std::span<const PlannedTrip> trips, const std::vector<int64_t>& spare);

}  // namespace innkeeper::plan
