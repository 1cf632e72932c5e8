// Group norm's backward has the memory format that the forward had, if the host's kernels compute. PyTorch's
// derivative formula makes its operands contiguous on every device except the CPU; then the kernel adds in
// another order.
#include <ATen/ATen.h>
#include <ATen/Operators.h>

#include <array>
#include <optional>
#include <tuple>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"
#include "torch/operator/typed_kernel.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Mark on the mean that a forward keeps for its backward: the input was in channels-last format. Autograd
// keeps it with the tensor, but a copy of the tensor loses it.
struct ChannelsLast final : c10::BackendMeta {};

bool lay_channels_last(const Tensor& mean) {
  return dynamic_cast<const ChannelsLast*>(mean.unsafeGetTensorImpl()->get_backend_meta()) != nullptr;
}

Three group_norm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, c10::SymInt n,
                 c10::SymInt c, c10::SymInt area, int64_t groups, double eps) {
  Three results = TypedKernel<at::_ops::native_group_norm>::run(input, weight, bias, n, c, area, groups, eps);
  if (input.suggest_memory_format() != at::MemoryFormat::Contiguous && runs_host_kernels())
    std::get<1>(results).unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<ChannelsLast>());
  return results;
}

Three group_norm_backward(const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                          const OptionalTensor& weight, c10::SymInt n, c10::SymInt c, c10::SymInt area,
                          int64_t groups, std::array<bool, 3> wanted) {
  const auto backward = TypedKernel<at::_ops::native_group_norm_backward>::run;
  if (!lay_channels_last(mean))
    return backward(gradient, input, mean, rstd, weight, n, c, area, groups, wanted);
  const auto format = input.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  return backward(gradient.contiguous(format), input.contiguous(format), mean, rstd, weight, n, c, area,
                  groups, wanted);
}

}  // namespace

void register_group_norm() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("native_group_norm", &group_norm);
  m.impl("native_group_norm_backward", &group_norm_backward);
}

}  // namespace innkeeper::torch_layer
