#include "cost/truth.h"

#include <bit>
#include <cmath>

namespace innkeeper::cost {
namespace {

// SplitMix64, by S. Vigna: every bit of the result depends on every bit of the number.
uint64_t mixed(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

uint64_t mixed(std::string_view text, uint64_t number) {
  for (const char letter : text) number = mixed(number ^ static_cast<unsigned char>(letter));
  return number;
}

// Returns a number in [0, 1).
double part(uint64_t number) { return static_cast<double>(number >> 11) * 0x1p-53; }

constexpr double kLeastRate = 0.6;

}  // namespace

double Truth::slower(std::string_view op, const KernelCost& kernel) const {
  const auto size = static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(kernel.bytes)));
  const uint64_t kind = size << 8 | static_cast<uint64_t>(kernel.precision);
  return std::exp2(2 * part(mixed(op, mixed(seed_) + kind)) - 1);
}

double Truth::rate(std::string_view of) const {
  return kLeastRate + (1 - kLeastRate) * part(mixed(of, mixed(seed_)));
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
