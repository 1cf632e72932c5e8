#include "cost/truth.h"

#include <bit>
#include <cmath>

#include "base/splitmix64.h"

namespace innkeeper::cost {
namespace {

uint64_t mixed(std::string_view text, uint64_t number) {
  for (const char letter : text) number = splitmix64(number ^ static_cast<unsigned char>(letter));
  return number;
}

// Returns a number in [0, 1).
double part(uint64_t number) { return static_cast<double>(number >> 11) * 0x1p-53; }

constexpr double kLeastRate = 0.6;

}  // namespace

double Truth::slower(std::string_view op, const KernelCost& kernel) const {
  const auto size = static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(kernel.bytes)));
  const uint64_t kind = size << 8 | static_cast<uint64_t>(kernel.precision);
  return std::exp2(2 * part(mixed(op, splitmix64(seed_) + kind)) - 1);
}

double Truth::rate(std::string_view of) const {
  return kLeastRate + (1 - kLeastRate) * part(mixed(of, splitmix64(seed_)));
}

GpuModel Truth::with_true_memory(GpuModel gpu) const {
  gpu.bandwidth *= rate("memory");
  return gpu;
}

LinkModel Truth::with_true_rate(LinkModel link) const {
  link.bandwidth *= rate("link");
  return link;
}

}  // namespace innkeeper::cost
