// Estimated time of a node's kernels, by a model of their work, for devices that do not report kernel times.
// By it the planner knows which operators are long enough to hide a copy.
//
// Thread safety: all methods.
#pragma once

#include <atomic>
#include <utility>

#include "cost/gpu_model.h"

namespace innkeeper::torch_layer {

class KernelClock {
 public:
  explicit KernelClock(cost::GpuModel gpu) : gpu_(std::move(gpu)) {}

  void add(const cost::KernelCost& kernel) {
    seconds_.fetch_add(cost::kernel_seconds(gpu_, kernel), std::memory_order_relaxed);
  }
  // Of all kernels so far.
  double seconds() const { return seconds_.load(std::memory_order_relaxed); }

 private:
  const cost::GpuModel gpu_;
  std::atomic<double> seconds_{0};
};

}  // namespace innkeeper::torch_layer
