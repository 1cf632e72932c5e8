// Which kernels compute: operators that PyTorch composes differently for CPUs and GPUs (dropout, attention,
// RNNs) are composed on the managed device as they are on the devices behind it.
#pragma once

#include <algorithm>

#include "torch/runtime_state.h"

namespace innkeeper::torch_layer {

// Whether every node that computes runs PyTorch's CPU kernels: the host and simulated accelerators. Starts
// the runtime.
inline bool runs_host_kernels() {
  Runtime& started = runtime();
  const auto& nodes = started.engine().computing_nodes();
  return std::all_of(nodes.begin(), nodes.end(), [&started](NodeId node) {
    const c10::DeviceType type = started.backend(node).device.type();
    return type == c10::kCPU || type == c10::kHPU;
  });
}

}  // namespace innkeeper::torch_layer
