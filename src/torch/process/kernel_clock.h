// Estimated time of a node's kernels, by a model of their work, for devices that do not report kernel times.
// The planner uses it to know which operators are long enough to hide a copy.
//
// Thread safety: all methods.
#pragma once

#include <atomic>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cost/gpu_model.h"
#include "cost/measured.h"

namespace innkeeper::torch_layer {

class KernelClock {
 public:
  explicit KernelClock(cost::GpuModel gpu) : by_name_(std::move(gpu)), gpu_(&by_name_) {}

  void add(const cost::KernelCost& kernel) {
    if (!probed_.load(std::memory_order_relaxed)) count(kernel);
    const double seconds = cost::kernel_seconds(*gpu_.load(std::memory_order_acquire), kernel);
    seconds_.fetch_add(seconds, std::memory_order_relaxed);
  }
  // Seconds of all kernels so far.
  double seconds() const { return seconds_.load(std::memory_order_relaxed); }
  // Whether any kernel before the probe multiplied matrices.
  bool has_products() const { return has_products_.load(std::memory_order_relaxed); }

  // Whether the GPU should be measured now (start/probe.h), which happens once. The time comes when the
  // program has multiplied matrices, so that their library is loaded, or after kWithoutProducts kernels.
  bool wants_probe() const {
    return !probed_.load(std::memory_order_relaxed) &&
           (has_products() || kernels_.load(std::memory_order_relaxed) >= kWithoutProducts);
  }
  // True for the first caller, which must measure the GPU.
  bool claim_probe() { return !probed_.exchange(true); }
  const cost::GpuModel& by_name() const { return by_name_; }
  // Prices all later kernels by these rates, and requests no more probe. Requires: called at most once, by
  // the caller that claimed the probe or before any kernel.
  void set_measured(const cost::Measured& rates) {
    IK_CHECK(!measured_.has_value(), "a GPU was measured twice");
    probed_.store(true);
    gpu_.store(&measured_.emplace(cost::with_measured(by_name_, rates)), std::memory_order_release);
  }

 private:
  void count(const cost::KernelCost& kernel) {
    if (kernel.flops > 0) has_products_.store(true, std::memory_order_relaxed);
    kernels_.fetch_add(1, std::memory_order_relaxed);
  }

  static constexpr int64_t kWithoutProducts = 256;

  const cost::GpuModel by_name_;
  std::optional<cost::GpuModel> measured_;
  std::atomic<const cost::GpuModel*> gpu_;
  std::atomic<double> seconds_{0};
  std::atomic<int64_t> kernels_{0};
  std::atomic<bool> has_products_{false};
  std::atomic<bool> probed_{false};
};

}  // namespace innkeeper::torch_layer
