#include "torch/runtime/keep_busy.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <thread>

#include "torch/runtime/device_index.h"
#include "torch/runtime/runtime_state.h"
#include "torch/sim/current.h"
#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer {

void keep_busy(double seconds) {
  TORCH_CHECK(seconds >= 0, "a device cannot be busy for ", seconds, " s");
  const NodeId node = has_device_per_node() ? node_at(current_index()) : home_node();
  const NodeBackend& backend = runtime().backend(node);
  if (backend.host) return std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  TORCH_CHECK(backend.kind == "sim", "only simulated GPUs and the host are kept busy, not ", backend.kind);
  sim::Accelerator& accelerator = sim_backend::accelerator(backend.device.index());
  accelerator.begin_kernel(sim_backend::kComputeQueue);
  accelerator.end_kernel(sim_backend::kComputeQueue, {},
                         {.flops = seconds * accelerator.options().gpu.flops(cost::Precision::bf16)});
}

}  // namespace innkeeper::torch_layer
