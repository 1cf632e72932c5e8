// Special forms of convolutions: the form that PyTorch's tracer records, and the "overrideable" pair to which
// PyTorch leads unknown devices. Ordinary calls never reach the pair, because the device implements
// convolution and convolution_backward as a whole. A direct call of the pair is passed on to those two.
#include <ATen/ATen.h>
#include <ATen/TracerMode.h>
#include <ATen/ops/convolution_native.h>
#include <ATen/ops/convolution_ops.h>

#include <array>
#include <tuple>
#include <utility>

#include "torch/kernels/custom_kernels.h"
#include "torch/operator/typed_kernel.h"

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

// PyTorch's tracer (torch.jit.trace) does not record convolution, but its composition.
at::Tensor traced_convolution(const at::Tensor& input, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                              c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                              c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  if (at::tracer::impl::is_dispatch_enabled()) [[unlikely]] {
    return at::native::convolution(input, weight, bias, C10_AS_INTARRAYREF_SLOW(stride),
                                   C10_AS_INTARRAYREF_SLOW(padding), C10_AS_INTARRAYREF_SLOW(dilation),
                                   transposed, C10_AS_INTARRAYREF_SLOW(output_padding),
                                   groups.guard_int(__FILE__, __LINE__));
  }
  return TypedKernel<at::_ops::convolution>::run(input, weight, bias, stride, padding, dilation, transposed,
                                                 output_padding, std::move(groups));
}

}  // namespace

void register_convolutions() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("convolution", traced_convolution);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace innkeeper::torch_layer
