// Runs a kernel of LibTorch's that makes tensors on the current device with the right device current.
// LibTorch's kernels for CUDA are generated with such a guard, those for other backends without one.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {
namespace detail {

// The index in the arguments: that of a device argument, else that of the first managed tensor.
struct SaidIndex {
  c10::DeviceIndex of_device = -1;
  c10::DeviceIndex of_tensor = -1;

  void look_at(const std::optional<c10::Device>& device) {
    if (device.has_value() && device->type() == kManagedType) of_device = index_of(device);
  }
  void look_at(const at::Tensor& x) {
    if (of_tensor < 0 && x.defined() && x.device().type() == kManagedType) of_tensor = x.device().index();
  }
  template <class Other>
  void look_at(const Other&) {}

  c10::DeviceIndex index() const { return of_device >= 0 ? of_device : of_tensor; }  // -1: the current index.
};

template <auto kernel, class Function>
struct AtDevice;

template <auto kernel, class Return, class... Args>
struct AtDevice<kernel, Return (*)(Args...)> {
  static Return call(Args... args) {
    if (!has_device_per_node()) return kernel(std::forward<Args>(args)...);
    SaidIndex said;
    (said.look_at(args), ...);
    const AtIndex at(said.index());
    return kernel(std::forward<Args>(args)...);
  }
};

}  // namespace detail

// The kernel within AtIndex of its device argument, or else of its first managed tensor.
template <auto kernel>
constexpr auto at_device() {
  return &detail::AtDevice<kernel, decltype(kernel)>::call;
}

}  // namespace innkeeper::torch_layer
