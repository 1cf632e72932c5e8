// The two clocks by which processes of one machine compare times.
//
// The machine's clock (CLOCK_BOOTTIME) counts from the machine's start, also while the machine is
// suspended. It cannot be set, and this function returns the same time in every time namespace. Leases and
// the line use it. The wall clock (CLOCK_REALTIME), which users and time servers set, is for display and
// for the queue's history.
#pragma once

#include <atomic>
#include <cstdint>

namespace innkeeper {

// Nanoseconds since the machine's start.
int64_t machine_clock_ns();

// Nanoseconds since 1970 by the machine's wall clock.
int64_t wall_clock_ns();

// The wall clock minus the machine's clock, in nanoseconds. Setting the wall clock changes it.
int64_t wall_ahead_ns();

// Added to the wall clock by tests, which cannot set the machine's.
inline std::atomic<int64_t> wall_clock_error_ns{0};

}  // namespace innkeeper
