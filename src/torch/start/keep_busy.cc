#include "torch/start/keep_busy.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <thread>

#include "torch/accelerator/backend.h"
#include "torch/memory/device_index.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {

void keep_busy(double seconds) {
  TORCH_CHECK(seconds >= 0, "a device cannot be busy for ", seconds, " s");
  const NodeId node = has_device_per_node() ? node_at(current_index()) : home_node();
  const NodeBackend& backend = runtime().backend(node);
  if (backend.host) return std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  backend.accelerator->keep_busy(backend.device.index(), seconds);
}

}  // namespace innkeeper::torch_layer
