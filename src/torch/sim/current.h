// The calling thread's current simulated device, and its current stream on each.
//
// A stream's id is the index of the accelerator's queue: 0 is the compute queue, the default stream.
#pragma once

#include <c10/core/Device.h>

#include <array>

#include "base/types.h"
#include "sim/accelerator.h"

namespace innkeeper::torch_layer::sim_backend {

inline constexpr sim::QueueIndex kComputeQueue = 0;
// Allocations keep a bit for each queue that uses them in one word.
inline constexpr sim::QueueIndex kMaxStreams = 64;

struct Current {
  c10::DeviceIndex device = 0;
  std::array<uint8_t, kMaxNodes> queue = {};
};
inline thread_local Current current;

inline c10::DeviceIndex current_device() { return current.device; }
inline sim::QueueIndex current_queue(c10::DeviceIndex device) {
  return current.queue[static_cast<size_t>(device)];
}

}  // namespace innkeeper::torch_layer::sim_backend
