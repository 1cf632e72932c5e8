// Estimated time of a node's kernels, by a model of their work, for devices that do not report kernel times.
// By it the planner knows which operators are long enough to hide a copy.
//
// Thread safety: all methods.
#pragma once

#include <atomic>

#include "sim/cards.h"
#include "sim/clock.h"

namespace innkeeper::torch_layer {

class KernelClock {
 public:
  explicit KernelClock(const sim::Card& card) : card_(card) {}

  // One kernel that does so many floating-point operations and touches so many bytes.
  void add(const sim::KernelCost& kernel) {
    seconds_.fetch_add(sim::kernel_seconds(card_, kernel), std::memory_order_relaxed);
  }
  // Of all kernels so far.
  double seconds() const { return seconds_.load(std::memory_order_relaxed); }

 private:
  const sim::Card card_;
  std::atomic<double> seconds_{0};
};

}  // namespace innkeeper::torch_layer
