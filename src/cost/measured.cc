#include "cost/measured.h"

#include <algorithm>

namespace innkeeper::cost {

GpuModel with_measured(GpuModel gpu, const Measured& measured) {
  if (const double known = gpu.flops(measured.precision); measured.flops > 0 && known > 0)
    gpu.reached_flops *= measured.flops / known;
  if (const double known = gpu.bytes(); measured.bytes > 0 && known > 0)
    gpu.reached_bandwidth *= measured.bytes / known;
  return gpu;
}

double link_rate(const Measured& measured, double otherwise) {
  if (measured.in > 0 && measured.out > 0) return std::min(measured.in, measured.out);
  const double known = std::max(measured.in, measured.out);
  return known > 0 ? known : otherwise;
}

}  // namespace innkeeper::cost
