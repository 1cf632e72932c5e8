#include "torch/start/probe.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <string>

#include "base/log.h"
#include "torch/accelerator/backend.h"
#include "torch/accelerator/compute_queue.h"
#include "torch/accelerator/current_device.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/registry/unseen.h"

namespace innkeeper::torch_layer {
namespace {

using cost::Precision;
using Clock = std::chrono::steady_clock;

// Part of the 100 ms after which no measurement starts.
constexpr auto kLastStart = std::chrono::milliseconds(60);
// Repetitions of each measurement; the best one counts, because other processes may use the device or its
// link meanwhile.
constexpr int kRounds = 3;
// Shorter work would measure a launch or the start of a copy.
constexpr double kLeastSeconds = 60e-6;
constexpr double kMostSeconds = 3e-3;
constexpr int64_t kMostBytes = 512 << 20;
constexpr int64_t kMostCopied = 64 << 20;
constexpr int64_t kLargest = 8192, kSmallest = 512;  // Rows of the square matrices.

// The fastest precision: a 16-bit one if the GPU multiplies in it at least as fast as in float32.
Precision fastest(const cost::GpuModel& gpu) {
  Precision best = Precision::fp32;
  for (const Precision each : {Precision::fp16, Precision::bf16})
    if (gpu.flops(each) >= gpu.flops(best)) best = each;
  return best;
}

at::ScalarType type_of(Precision precision) {
  if (precision == Precision::bf16) return at::kBFloat16;
  return precision == Precision::fp16 ? at::kHalf : at::kFloat;
}

// Waits for the device at its end: memory must not be freed while a started copy may touch it.
class AllOver {
 public:
  explicit AllOver(c10::Device device) : device_(device) {}
  ~AllOver() {
    try {
      c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    } catch (const std::exception&) {  // The device is lost, and its copies with it.
    }
  }
  AllOver(const AllOver&) = delete;
  AllOver& operator=(const AllOver&) = delete;

 private:
  const c10::Device device_;
};

class Prober {
 public:
  explicit Prober(const ProbeSetup& setup) : setup_(setup), guard_(setup.device.type()) {}

  void measure() {
    if (setup_.products) products();
    memory();
    if (setup_.host_memory != nullptr) copies();
  }
  const cost::Measured& measured() const { return measured_; }

 private:
  bool late() const { return Clock::now() - begun_ > kLastStart; }

  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) const {
    return at::empty(sizes, at::TensorOptions().device(setup_.device).dtype(type));
  }

  c10::Stream compute() const { return guard_.getDefaultStream(setup_.device); }

  // Seconds that `work` takes on a stream, the least of kRounds rounds; 0 if no round gave a time. Each round
  // does the work twice. While the device is busy with the first, the host launches the second, so that the
  // launch is not part of the measured time. `beside` is launched before both.
  template <class Work, class Beside>
  double least(const c10::Stream& stream, const Work& work, const Beside& beside) const {
    double found = 0;
    for (int round = 0; round < kRounds && !late(); ++round) {
      c10::Event begin(setup_.device.type(), c10::EventFlag::BACKEND_DEFAULT);
      c10::Event end(setup_.device.type(), c10::EventFlag::BACKEND_DEFAULT);
      beside();
      work();
      begin.record(stream);
      work();
      end.record(stream);
      end.synchronize();
      begin.synchronize();
      const double took = begin.elapsedTime(end) * 1e-3;
      if (took > 0 && (found == 0 || took < found)) found = took;
    }
    return found;
  }

  void products() {
    const Precision precision = fastest(setup_.gpu);
    const at::ScalarType type = type_of(precision);
    const auto item = static_cast<int64_t>(c10::elementSize(type));
    const auto flops = [](int64_t rows) { return 2 * std::pow(static_cast<double>(rows), 3); };
    const double rate = setup_.gpu.flops(precision);
    int64_t rows = kLargest;
    while (rows >= kSmallest &&
           (3 * rows * rows * item > setup_.space.count() || flops(rows) / rate > kMostSeconds))
      rows /= 2;
    if (rows < kSmallest || flops(rows) / rate < kLeastSeconds) return;
    // Different numbers between 0 and 1: a product of zeros takes less power, so that clocks are higher.
    const at::Tensor factor = make({rows, rows}, type);
    factor.copy_(at::arange(rows, factor.options()).mul_(1 / static_cast<double>(rows)));
    at::Tensor result = make({rows, rows}, type);
    at::mm_out(result, factor, factor);  // The first call loads the kernel.
    const double took = least(
        compute(), [&] { at::mm_out(result, factor, factor); }, [] {});
    if (took == 0) return;
    measured_.precision = precision;
    measured_.flops = flops(rows) / took;
  }

  // Seconds that the model predicts for a kernel that touches this number of bytes.
  double expected(int64_t touched) const { return static_cast<double>(touched) / setup_.gpu.bytes(); }

  void memory() {
    const int64_t size = std::min(kMostBytes, setup_.space.count());
    if (late() || size < 2 * setup_.cache.count() || expected(size) < kLeastSeconds) return;
    // Not in place, so that reads and writes count once for each tensor.
    const at::Tensor from = make({size / 8}, at::kFloat).zero_();
    at::Tensor to = make({size / 8}, at::kFloat);
    const double took = least(
        compute(), [&] { at::add_out(to, from, 1); }, [] {});
    if (took > 0) measured_.bytes = static_cast<double>(from.nbytes() + to.nbytes()) / took;
  }

  void copies() {
    const int64_t size = std::min(kMostCopied, setup_.space.count() / 2);
    if (late() || setup_.link <= 0 || static_cast<double>(size) / setup_.link < kLeastSeconds) return;
    Result<Memory> host = setup_.host_memory->allocate(Bytes(size), Queue::compute);
    if (!host.ok()) return;
    const at::Tensor there = at::from_blob(host.value().data(), {size}, at::kByte);
    const at::Tensor here = make({size}, at::kByte);
    at::Tensor busy = make({size / 4}, at::kFloat);
    here.zero_();
    busy.zero_();
    const AllOver before_memory_goes(setup_.device);
    measured_.in = rate_beside(busy, here, there);
    measured_.out = rate_beside(busy, there, here);
  }

  // Bytes per second of a copy while kernels run for about the expected time of two copies.
  double rate_beside(at::Tensor& busy, const at::Tensor& to, const at::Tensor& from) const {
    if (late()) return 0;
    const auto size = static_cast<double>(to.nbytes());
    const double kernel = expected(static_cast<int64_t>(busy.nbytes())) + setup_.gpu.launch_seconds;
    const auto kernels = static_cast<int>(std::clamp(2 * size / setup_.link / kernel + 1, 1.0, 512.0));
    const c10::Stream side = guard_.getStreamFromGlobalPool(setup_.device, /*isHighPriority=*/true);
    c10::Event ready(setup_.device.type());
    ready.record(compute());
    ready.block(side);
    const auto copy = [&] {
      const c10::StreamGuard beside(side);
      to.copy_(from, /*non_blocking=*/true);
    };
    const double took = least(side, copy, [&] {
      for (int i = 0; i < kernels; ++i) busy.add_(1);
    });
    compute().synchronize();
    return took > 0 ? size / took : 0;
  }

  const ProbeSetup& setup_;
  const c10::impl::VirtualGuardImpl guard_;
  const Clock::time_point begun_ = Clock::now();
  cost::Measured measured_;
};

}  // namespace

cost::Measured probe(const ProbeSetup& setup) noexcept {
  Prober prober(setup);
  try {
    const Unseen unseen;
    const DisarmedCpu disarmed;
    const std::shared_ptr<void> without_factors = backend_of(setup.device.type())->at_its_rates();
    keeping_current_device(setup.device.type(), [&] {
      const OnComputeQueue on_queue(setup.device);
      prober.measure();
      return 0;
    });
  } catch (const std::exception& error) {
    if (log_enabled(LogLevel::info))
      log(LogLevel::info, "the probe of " + setup.device.str() + " ended early: " + error.what());
  }
  return prober.measured();
}

}  // namespace innkeeper::torch_layer
