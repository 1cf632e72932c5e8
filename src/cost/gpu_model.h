// Models of GPUs: how fast each one computes and touches its memory. The simulator's clock and the price of
// kernels that nothing timed use one table of them. Sources stand beside each row in gpu_table.cc.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/types.h"
#include "cost/precision.h"

namespace innkeeper::cost {

// Floating-point (or integer) operations per second by precision. Data sheets give these peaks; no program
// reaches them.
using Rates = std::array<double, kPrecisionNames.size()>;

struct GpuModel {
  std::string name;
  Bytes memory;             // as the driver reports it, rounded down to whole GiB
  int multiprocessors = 0;  // 0: unknown
  Rates rates = {};
  double bandwidth = 0;                  // peak of its memory, bytes per second
  double launch_seconds = 4e-6;          // added to each kernel
  double reached_flops = 0.8;            // part of `rates` that large matrix products reach
  double reached_bandwidth = 0.9;        // part of `bandwidth` that kernels reach
  std::string_view link = "PCIe 4 x16";  // that usually joins it to its host (link_model.h)

  // Per second, as kernels reach it.
  double flops(Precision precision) const { return rates[static_cast<size_t>(precision)] * reached_flops; }
  double bytes() const { return bandwidth * reached_bandwidth; }
};

// What a kernel does, for its time.
struct KernelCost {
  double flops = 0;
  double bytes = 0;
  Precision precision = Precision::bf16;
  double slower = 1;  // it takes as many times as long (truth.h)
};

// Roofline: arithmetic or memory bounds a kernel, and each launch takes time as well.
inline double kernel_seconds(const GpuModel& gpu, const KernelCost& kernel) {
  const double arithmetic = kernel.flops / gpu.flops(kernel.precision);
  return gpu.launch_seconds + kernel.slower * std::max(arithmetic, kernel.bytes / gpu.bytes());
}

// The model that people call so, in any of the usual spellings: "RTX 4090", "rtx4090", "4090", "NVIDIA
// GeForce RTX 4090". Also "custom:TFLOPS:GB/s:SIZE", as custom:165:1008:23GiB, whose rate holds for every
// precision and is reached. A vendor's name, "RTX", and the size of the model's memory do not count; any
// other word does, as in "H100 NVL". Fails with half a sentence that names the nearest models, to be put
// behind the name.
Result<GpuModel> gpu_named(std::string_view name);

GpuModel default_gpu();  // of the simulator

}  // namespace innkeeper::cost
