// Batch norm with cuDNN's kernel where a GPU would take it. PyTorch composes batch norm by the device's type,
// and takes its own kernel for a type that it does not know.
#include <ATen/ATen.h>
#include <ATen/native/Normalization.h>
#include <ATen/ops/_batch_norm_impl_index_native.h>

#include <optional>
#include <tuple>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"

namespace innkeeper::torch_layer {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Normed = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, int64_t>;

// The number of cuDNN's kernel for _batch_norm_impl_index_backward.
constexpr int64_t kCudnn = 1;

at::Tensor value_of(const OptionalTensor& x) { return x.value_or(at::Tensor()); }

bool takes_cudnn(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                 const OptionalTensor& mean, const OptionalTensor& variance, bool training, double eps) {
  if (!runs_cuda_kernels() || input.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return false;
  const NodeBackend& home = runtime().backend(home_node());
  const auto shaped = [&home](const at::Tensor& x) {
    return x.defined() ? shape_only(x, home.device, home.key) : at::Tensor();
  };
  return at::native::_select_batch_norm_backend(
             shaped(input), shaped(value_of(weight)), shaped(value_of(bias)), shaped(value_of(mean)),
             shaped(value_of(variance)), training, eps) == at::native::BatchNormBackend::Cudnn;
}

Normed batch_norm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                  const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                  double momentum, double eps, bool cudnn_enabled) {
  if (!cudnn_enabled || input.sym_numel() == 0 ||
      !takes_cudnn(input, weight, bias, running_mean, running_var, training, eps)) {
    return at::native::_batch_norm_impl_index(input, weight, bias, running_mean, running_var, training,
                                              momentum, eps, cudnn_enabled);
  }
  const auto contiguous = [](const OptionalTensor& x) {
    return x.has_value() && x->defined() ? OptionalTensor(x->contiguous()) : OptionalTensor();
  };
  auto [output, save_mean, save_variance, reserve] = at::cudnn_batch_norm(
      input.contiguous(input.suggest_memory_format()), weight->contiguous(), contiguous(bias),
      contiguous(running_mean), contiguous(running_var), training, momentum, eps);
  return {output, save_mean, save_variance, reserve, kCudnn};
}

}  // namespace

// Both keys, because the operator is CompositeImplicit: see random_ops.cc.
void register_batch_norm() {
  for (const c10::DispatchKey key : {kManagedAutogradKey, kManagedKey}) {
    kernels_for("aten", key).impl("_batch_norm_impl_index", batch_norm);
  }
}

}  // namespace innkeeper::torch_layer
