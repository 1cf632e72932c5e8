// The kind of kernels that compute. PyTorch composes some operators differently for CPUs and GPUs (dropout,
// attention, RNNs); on the managed device they are composed as on the devices behind it.
//
// If PyTorch's choice depends on a tensor's device, type and shape, it is made for a shape-only copy of the
// managed tensor on the computing device.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {

// Whether every computing node runs PyTorch's CPU kernels: the host and simulated accelerators. Starts the
// runtime.
inline bool runs_host_kernels() {
  Runtime& started = runtime();
  const auto& nodes = started.engine().computing_nodes();
  return std::all_of(nodes.begin(), nodes.end(), [&started](NodeId node) {
    return started.backend(node).kernel_key == c10::DispatchKey::CPU;
  });
}

// Whether every computing node runs PyTorch's CUDA kernels. Starts the runtime.
inline bool runs_cuda_kernels() {
  Runtime& started = runtime();
  const auto& nodes = started.engine().computing_nodes();
  return std::all_of(nodes.begin(), nodes.end(), [&started](NodeId node) {
    return started.backend(node).kernel_key == c10::DispatchKey::CUDA;
  });
}

// A tensor of the same geometry on `device`, without any memory: for code that reads only its geometry.
at::Tensor shape_only(const at::Tensor& x, c10::Device device, c10::DispatchKey key);

}  // namespace innkeeper::torch_layer
