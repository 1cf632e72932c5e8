// Copies and zeros that are made in one operator if only the host computes. PyTorch makes an empty tensor and
// lets a second operator write it. Then the engine frees space for a block that was never written, and lists
// it. With one operator the kernel makes the result, as it makes any other.
//
// On other machines it stays two operators: a copy may go between nodes, and operands too large for a GPU are
// computed in slices.
#include <ATen/NativeFunctions.h>
#include <ATen/Operators.h>

#include "torch/kernels/custom_kernels.h"
#include "torch/operator/typed_kernel.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;

bool host_alone_computes() {
  const Engine& engine = runtime().engine();
  return engine.computing_nodes().size() == 1 && engine.computing_nodes().front() == engine.host();
}

Tensor clone(const Tensor& self, std::optional<at::MemoryFormat> format) {
  if (self._is_zerotensor() || !host_alone_computes()) return at::native::clone(self, format);
  return TypedKernel<at::_ops::clone>::run(self, format);
}

Tensor zeros_like(const Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                  std::optional<at::Device> device, std::optional<bool> pin_memory,
                  std::optional<at::MemoryFormat> format) {
  const bool alike =
      !self._is_zerotensor() && c10::layout_or_default(layout) == at::kStrided &&
      (!device.has_value() || *device == self.device() || *device == c10::Device(kManagedType)) &&
      !c10::pinned_memory_or_default(pin_memory);
  if (!alike || !host_alone_computes())
    return at::native::zeros_like(self, dtype, layout, device, pin_memory, format);
  // The call passes no device: the kernel's tensors are on the device of the real tensors.
  return TypedKernel<at::_ops::zeros_like>::run(self, dtype, std::nullopt, std::nullopt, std::nullopt,
                                                format);
}

}  // namespace

void register_one_step() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("clone", &clone);
  m.impl("zeros_like", &zeros_like);
}

}  // namespace innkeeper::torch_layer
