// Models of GPUs: their compute and memory rates. The simulator's clock and the estimates for untimed kernels
// use the same table. Each row in gpu_table.cc names its source.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/types.h"
#include "cost/precision.h"

namespace innkeeper::cost {

// Floating-point (or integer) operations per second by precision. Data sheets give these peaks; no
// program reaches them.
using Rates = std::array<double, kPrecisionNames.size()>;

struct GpuModel {
  std::string name;
  Bytes memory;             // Memory that the driver reports, rounded down to whole GiB.
  int multiprocessors = 0;  // Number of multiprocessors; 0: unknown.
  Rates rates = {};
  double bandwidth = 0;                  // Peak bandwidth of its memory, bytes per second.
  double launch_seconds = 4e-6;          // Time added to each kernel, s.
  double reached_flops = 0.8;            // Share of `rates` that large matrix products reach.
  double reached_bandwidth = 0.9;        // Share of `bandwidth` that kernels reach.
  std::string_view link = "PCIe 4 x16";  // Usual link to its host (link_model.h).

  // Rates per second that kernels reach.
  double flops(Precision precision) const { return rates[static_cast<size_t>(precision)] * reached_flops; }
  double bytes() const { return bandwidth * reached_bandwidth; }
};

// Work of a kernel, which determines its time.
struct KernelCost {
  double flops = 0;
  double bytes = 0;
  Precision precision = Precision::bf16;
  double slower = 1;  // Factor on the kernel's time (truth.h).
};

// Roofline: arithmetic or memory bounds a kernel, and each launch takes time as well.
inline double kernel_seconds(const GpuModel& gpu, const KernelCost& kernel) {
  const double arithmetic = kernel.flops / gpu.flops(kernel.precision);
  return gpu.launch_seconds + kernel.slower * std::max(arithmetic, kernel.bytes / gpu.bytes());
}

// Returns the model of this name, in any usual spelling: "RTX 4090", "rtx4090", "4090", "NVIDIA GeForce RTX
// 4090". Also accepts "custom:TFLOPS:GB/s:SIZE", as custom:165:1008:23GiB, whose rate holds for every
// precision and is reached. A vendor's name, "RTX", and the size of the model's memory do not count; any
// other word does, as in "H100 NVL". Fails with half a sentence that names the nearest models; callers prefix
// it with the name.
Result<GpuModel> gpu_named(std::string_view name);

GpuModel default_gpu();  // The simulator's default.

}  // namespace innkeeper::cost
