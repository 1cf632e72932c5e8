#include "replay/truth.h"

#include <bit>
#include <cmath>
#include <string_view>

#include "replay/player.h"

namespace innkeeper::replay {
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

// From 0 to 1, not 1.
double part(uint64_t number) { return static_cast<double>(number >> 11) * 0x1p-53; }

constexpr double kLeastRate = 0.6;

double rate(std::string_view of, uint64_t seed) {
  return kLeastRate + (1 - kLeastRate) * part(mixed(of, mixed(seed)));
}

}  // namespace

trace::Record with_true_kernels(const trace::Record& record, uint64_t seed) {
  trace::Record truth = record;
  for (trace::Entry& entry : truth.entries) {
    if (entry.kind != trace::Entry::Kind::operation) continue;
    entry.work = work_of(record, entry);
    const auto size = std::bit_width(static_cast<uint64_t>(entry.work.bytes));
    const double times =
        std::exp2(2 * part(mixed(entry.text, mixed(seed) + static_cast<uint64_t>(size))) - 1);
    entry.work.flops *= times;
    entry.work.bytes *= times;
  }
  return truth;
}

cost::GpuModel with_true_memory(cost::GpuModel card, uint64_t seed) {
  card.bandwidth *= rate("memory", seed);
  return card;
}

cost::LinkModel with_true_bandwidth(cost::LinkModel link, uint64_t seed) {
  link.bandwidth *= rate("link", seed);
  return link;
}

}  // namespace innkeeper::replay
