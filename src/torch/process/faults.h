// Faults on demand, for tests: the n-th allocation, copy or kernel fails. Each place that may fail asks
// injected() first.
//
// These places are below the engine: memory that a simulated accelerator or the host hands out, copies,
// kernels and events of the simulated accelerators. So tests reach all code above them that frees, undoes or
// retries.
//
// When off, it costs one relaxed load at each place. No place is on the path of an operator of a real
// accelerator.
//
// Thread safety: all functions. The count is of the whole process.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "innkeeper/export.h"

namespace innkeeper::torch_layer::faults {

enum class Fault : uint8_t {
  allocation = 1,   // No memory, after the allocation was charged.
  copy = 2,         // A copy is refused.
  kernel = 4,       // A kernel throws before it computes.
  late_kernel = 8,  // A kernel throws after it has written.
  event = 16,       // An event cannot be recorded, awaited or queried, as after an error of a GPU.
  other_bits = 32,  // An operator that runs again gives other bits.
};

namespace detail {
extern std::atomic<unsigned> armed;  // Bits of Fault.
bool counts(Fault kind);
}  // namespace detail

// Whether this call must fail. Counts the call if faults of its kind are armed.
inline bool injected(Fault kind) {
  const bool armed = (detail::armed.load(std::memory_order_relaxed) & static_cast<unsigned>(kind)) != 0;
  return armed && detail::counts(kind);
}

// The message of an injected failure; `what` names the failure.
std::string message(const char* what);

// Counts the calls of the `kinds` (bits of Fault) from now on. The `nth` of them (from 1) and the next `more`
// fail. An nth of 0 only counts; kinds of 0 turn it off.
IK_EXPORT void arm(unsigned kinds, int64_t nth, int64_t more);

struct Counts {
  int64_t calls;  // Calls since arm().
  int64_t hits;   // Failed calls since arm().
};
IK_EXPORT Counts counts();

}  // namespace innkeeper::torch_layer::faults
