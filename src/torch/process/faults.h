// Faults on demand, for tests: the n-th allocation, copy or kernel fails. Each place that may fail asks
// injected() first.
//
// The places are below the engine: memory that a simulated accelerator or the host hands out, copies, kernels
// and events of the simulated accelerators. So everything above is tried: what gives back, what undoes, what
// retries.
//
// Off, it costs one relaxed load in each place, none of which is on the path of an operator of a real
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
  allocation = 1,   // no memory, after it was charged
  copy = 2,         // a copy is refused
  kernel = 4,       // a kernel throws before it computes
  late_kernel = 8,  // a kernel throws when it has written
  event = 16,       // recording an event, waiting for one or asking it throws, as errors of a card do
  other_bits = 32,  // an operator that runs again gives other bits
};

namespace detail {
extern std::atomic<unsigned> armed;  // bits of Fault
bool counts(Fault kind);
}  // namespace detail

// Must this call fail? Counts it if faults of its kind are armed.
inline bool injected(Fault kind) {
  const bool armed = (detail::armed.load(std::memory_order_relaxed) & static_cast<unsigned>(kind)) != 0;
  return armed && detail::counts(kind);
}

// What an injected failure says of itself.
std::string message(const char* what);

// From now on the `nth` call (from 1) of those that `kinds` (bits of Fault) name fails, and the `more` after
// it. An nth of 0 only counts; kinds of 0 turn it off.
IK_EXPORT void arm(unsigned kinds, int64_t nth, int64_t more);

struct Counts {
  int64_t calls;  // since arm()
  int64_t hits;   // of them failed
};
IK_EXPORT Counts counts();

}  // namespace innkeeper::torch_layer::faults
