// Which kernels compute: operators that PyTorch composes differently for CPUs and GPUs (dropout, attention,
// RNNs) are composed on the managed device as they are on the devices behind it.
//
// Where PyTorch asks a tensor's device, type and shape to choose, it is asked about a shape-only copy of the
// managed tensor on the device that computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "torch/process/runtime_state.h"

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

// Whether every node that computes is a CUDA card. Starts the runtime.
inline bool runs_cuda_kernels() {
  Runtime& started = runtime();
  const auto& nodes = started.engine().computing_nodes();
  return std::all_of(nodes.begin(), nodes.end(),
                     [&started](NodeId node) { return started.backend(node).device.is_cuda(); });
}

// A tensor of the same geometry on `device`, without any memory: for who looks at nothing else.
at::Tensor shape_only(const at::Tensor& x, c10::Device device, c10::DispatchKey key);

}  // namespace innkeeper::torch_layer
