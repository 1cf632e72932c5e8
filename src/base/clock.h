// The clocks by which processes of one machine compare when things happened.
//
// Nobody sets the machine's clock: it counts from the machine's start, also while the machine sleeps, and
// says the same in every time namespace. It decides; the wall clock, which users and time servers set, is for
// people.
#pragma once

#include <atomic>
#include <cstdint>

namespace innkeeper {

// Nanoseconds since the machine's start.
int64_t machine_clock_ns();

// Nanoseconds since 1970, as the machine is set.
int64_t wall_clock_ns();

// Added to the wall clock by tests, which may not set the machine's.
inline std::atomic<int64_t> wall_clock_error_ns{0};

}  // namespace innkeeper
