// Convolutions for unknown devices end in the "overrideable" pair. Ordinary calls never come that far,
// because the boxed kernel takes convolution and convolution_backward whole; who calls the pair directly is
// led back to those.
#include <ATen/ATen.h>

#include <array>
#include <tuple>

#include "torch/kernels/own_kernels.h"

namespace innkeeper::torch_layer {
namespace {

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, c10::SymInt groups, std::array<bool, 3> wanted) {
  const std::array<c10::SymInt, 1> bias_size = {grad.sym_size(1)};
  return at::convolution_backward_symint(grad, input, weight, c10::SymIntArrayRef(bias_size), stride, padding,
                                         dilation, transposed, output_padding, std::move(groups), wanted);
}

}  // namespace

void register_convolutions() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace innkeeper::torch_layer
