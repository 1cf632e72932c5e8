// What work costs in virtual time, in seconds. Pure functions; links are full duplex, so directions do not
// share.
#pragma once

#include <algorithm>

#include "sim/accelerator.h"
#include "sim/cards.h"

namespace innkeeper::sim {

// Roofline: a kernel is bound by arithmetic or by memory, and each launch costs as well.
inline double kernel_seconds(const Card& card, const KernelCost& cost) {
  return card.launch_seconds + std::max(cost.flops / card.flops, cost.bytes / card.bandwidth);
}

inline double copy_seconds(const Link& link, size_t bytes, HostMemory memory = HostMemory::pinned) {
  const bool staged = memory == HostMemory::pageable && link.pageable > 0;
  return link.latency + static_cast<double>(bytes) / (staged ? link.pageable : link.bandwidth);
}

// A copy within one memory is a kernel that reads and writes each byte.
inline double copy_within_seconds(const Card& card, size_t bytes) {
  return kernel_seconds(card, {.flops = 0, .bytes = 2.0 * static_cast<double>(bytes)});
}

}  // namespace innkeeper::sim
