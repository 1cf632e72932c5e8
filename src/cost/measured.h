// What a probe has measured of a GPU: the rates of what is there (a power limit, a part of a GPU, a link
// behind a switch), where the table has those of a name.
#pragma once

#include "cost/gpu_model.h"
#include "cost/precision.h"

namespace innkeeper::cost {

// 0: not measured.
struct Measured {
  Precision precision = Precision::bf16;  // of the products
  double flops = 0;                       // floating-point operations per second of a large matrix product
  double bytes = 0;                       // bytes per second that a kernel touches in the GPU's memory
  double in = 0;   // bytes per second over the link from page-locked memory, beside kernels,
  double out = 0;  // and to there

  bool any() const { return flops > 0 || bytes > 0 || in > 0 || out > 0; }
};

// The model with the measured rates in place of its own. Products of other precisions are taken to reach the
// same part of the model's rates.
GpuModel with_measured(GpuModel gpu, const Measured& measured);

// Bytes per second of the slower direction of the link; `otherwise` where none was measured.
double link_rate(const Measured& measured, double otherwise);

}  // namespace innkeeper::cost
