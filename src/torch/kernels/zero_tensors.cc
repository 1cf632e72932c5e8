// Operators to which PyTorch passes zeros without memory unchanged, because its own kernels support them.
// (For every other operator PyTorch makes ordinary zeros first, or knows the result; factories.cc makes such
// tensors.)
#include <ATen/NativeFunctions.h>
#include <ATen/Operators.h>
#include <ATen/ops/_efficientzerotensor.h>

#include "torch/kernels/custom_kernels.h"
#include "torch/operator/typed_kernel.h"

namespace innkeeper::torch_layer {
namespace {

using at::Scalar;
using at::Tensor;

// As for a tensor of one element, for which PyTorch knows the result.
Tensor add(const Tensor& self, const Scalar& other, const Scalar& alpha) {
  if (self._is_zerotensor()) [[unlikely]]
    return at::native::add(self, other, alpha);
  return TypedKernel<at::_ops::add_Scalar>::run(self, other, alpha);
}

Tensor mul(const Tensor& self, const Scalar& other) {
  if (self._is_zerotensor()) [[unlikely]]
    return at::native::mul(self, other);
  return TypedKernel<at::_ops::mul_Scalar>::run(self, other);
}

// Runs the product on ordinary zeros for its error checks.
template <class Op>
Tensor product(const Tensor& self, const Tensor& other) {
  if (!self._is_zerotensor() && !other._is_zerotensor()) [[likely]]
    return TypedKernel<Op>::run(self, other);
  const auto ordinary = [](const Tensor& x) { return x._is_zerotensor() ? x.clone() : x; };
  (void)TypedKernel<Op>::run(ordinary(self), ordinary(other));
  return at::_efficientzerotensor({}, self.options());
}

}  // namespace

void register_zero_tensors() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("add.Scalar", &add);
  m.impl("mul.Scalar", &mul);
  m.impl("dot", &product<at::_ops::dot>);
  m.impl("vdot", &product<at::_ops::vdot>);
}

}  // namespace innkeeper::torch_layer
