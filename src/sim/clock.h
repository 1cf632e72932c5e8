// Cost of work in virtual time, seconds. Pure functions; links are full duplex, so the directions do not
// share bandwidth.
#pragma once

#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "sim/accelerator.h"

namespace innkeeper::sim {

inline double copy_seconds(const cost::LinkModel& link, size_t bytes,
                           HostMemory memory = HostMemory::pinned) {
  const bool staged = memory == HostMemory::pageable && link.pageable > 0;
  return link.latency + static_cast<double>(bytes) / (staged ? link.pageable : link.bandwidth);
}

// A copy within one memory is a kernel that reads and writes each byte.
inline double copy_within_seconds(const cost::GpuModel& gpu, size_t bytes) {
  return cost::kernel_seconds(gpu, {.flops = 0, .bytes = 2.0 * static_cast<double>(bytes)});
}

}  // namespace innkeeper::sim
