// Rates that a probe has measured of a GPU. They reflect the present hardware (a power limit, a part of a
// GPU, a link behind a switch), while the table has the rates of a name.
#pragma once

#include "cost/gpu_model.h"
#include "cost/precision.h"

namespace innkeeper::cost {

// Measured rates; 0: not measured.
struct Measured {
  Precision precision = Precision::bf16;  // Precision of the products.
  double flops = 0;                       // Floating-point operations per second of a large matrix product.
  double bytes = 0;                       // Bytes per second that a kernel touches in the GPU's memory.
  double in = 0;   // Bytes per second over the link from page-locked memory, concurrently with kernels.
  double out = 0;  // Bytes per second over the link to page-locked memory, concurrently with kernels.

  bool any() const { return flops > 0 || bytes > 0 || in > 0 || out > 0; }
};

// Returns the model with the measured rates in place of its own. Products of other precisions are assumed to
// reach the same share of the model's rates.
GpuModel with_measured(GpuModel gpu, const Measured& measured);

// Returns the bytes per second of the slower direction of the link; `otherwise` if none was measured.
double link_rate(const Measured& measured, double otherwise);

}  // namespace innkeeper::cost
