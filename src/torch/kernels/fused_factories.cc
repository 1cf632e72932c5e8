// Copies and zeros that are made in one step where the host alone computes. PyTorch makes an empty tensor and
// has an operator write it: then the engine makes room for a block that was not written, and lists it. As one
// operator its result is born by the kernel, as any other's is.
//
// Elsewhere it stays two: a copy may go between nodes, and what is too large for a card goes in slices.
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
  // The kernel's tensors are where the real ones are.
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
