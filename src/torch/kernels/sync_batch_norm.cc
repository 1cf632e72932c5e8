// The steps of a batch norm over the batches of several processes (torch.nn.SyncBatchNorm), which PyTorch has
// only for GPUs. A real GPU runs its own kernels; on other nodes they are composed of other operators.
// Statistics are in float32, or in float64 for inputs of float64.
#include <ATen/ATen.h>

#include <optional>
#include <tuple>
#include <vector>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"
#include "torch/operator/typed_kernel.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor wide(const Tensor& x) { return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); }

// All dimensions except that of the channels.
std::vector<int64_t> other_dims(const Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// One value for each channel, in a shape that broadcasts to the input's.
Tensor along_channels(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = values.numel();
  return wide(values).view(shape);
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  if (runs_cuda_kernels()) return TypedKernel<at::_ops::batch_norm_stats>::run(input, eps);
  const auto [variance, mean] = at::var_mean(wide(input), other_dims(input), /*unbiased=*/false);
  return {mean, (variance + eps).rsqrt()};
}

// The statistics of all batches; `counts` has each batch's number of values per channel.
std::tuple<Tensor, Tensor> gather_stats(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                        const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                        double momentum, double eps, const Tensor& counts) {
  if (runs_cuda_kernels()) {
    static const ManagedOp& op = *new ManagedOp(read_signature(
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::batch_norm_gather_stats_with_counts", "")));
    torch::jit::Stack stack;
    torch::jit::push(stack, input, mean, invstd, running_mean, running_var, momentum, eps, counts);
    run_managed(op, &stack);
    return {stack[0].toTensor(), stack[1].toTensor()};
  }
  const Tensor weights = counts.to(mean.scalar_type()).view({-1, 1});
  const Tensor total = weights.sum();
  const Tensor whole = (mean * weights).sum(0) / total;
  const Tensor variances = invstd.square().reciprocal() - eps;
  const Tensor variance = ((variances + (mean - whole).square()) * weights).sum(0) / total;
  const auto follow = [momentum](const OptionalTensor& running, const Tensor& value) {
    if (running.has_value() && running->defined())
      Tensor(*running).mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
  };
  follow(running_mean, whole);
  follow(running_var, variance * (total / (total - 1)));
  return {whole, (variance + eps).rsqrt()};
}

Tensor normed(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
              const Tensor& mean, const Tensor& invstd, double eps) {
  if (runs_cuda_kernels())
    return TypedKernel<at::_ops::batch_norm_elemt>::run(input, weight, bias, mean, invstd, eps);
  Tensor result = (wide(input) - along_channels(mean, input)) * along_channels(invstd, input);
  if (weight.has_value() && weight->defined()) result = result * along_channels(*weight, input);
  if (bias.has_value() && bias->defined()) result = result + along_channels(*bias, input);
  return result.to(input.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> reduce_backward(const Tensor& grad_out, const Tensor& input,
                                                           const Tensor& mean, const Tensor& invstd,
                                                           const OptionalTensor& weight, bool input_g,
                                                           bool weight_g, bool bias_g) {
  if (runs_cuda_kernels()) {
    return TypedKernel<at::_ops::batch_norm_backward_reduce>::run(grad_out, input, mean, invstd, weight,
                                                                  input_g, weight_g, bias_g);
  }
  const Tensor gradient = wide(grad_out);
  const std::vector<int64_t> dims = other_dims(input);
  const Tensor sum = gradient.sum(dims);
  const Tensor product = (gradient * (wide(input) - along_channels(mean, input))).sum(dims);
  const auto as_weight = [&](const Tensor& x) {
    return weight.has_value() && weight->defined() ? x.to(weight->scalar_type()) : x;
  };
  return {input_g ? sum : Tensor(), input_g ? product : Tensor(),
          weight_g ? as_weight(product * invstd) : Tensor(), bias_g ? as_weight(sum) : Tensor()};
}

Tensor input_backward(const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                      const OptionalTensor& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu,
                      const Tensor& count) {
  if (runs_cuda_kernels()) {
    return TypedKernel<at::_ops::batch_norm_backward_elemt>::run(grad_out, input, mean, invstd, weight,
                                                                 sum_dy, sum_dy_xmu, count);
  }
  const Tensor total = count.sum().to(mean.scalar_type());
  const Tensor centred = wide(input) - along_channels(mean, input);
  const Tensor slope = along_channels(sum_dy_xmu / total * invstd.square(), input);
  Tensor gradient = wide(grad_out) - along_channels(sum_dy / total, input) - centred * slope;
  gradient = gradient * along_channels(invstd, input);
  if (weight.has_value() && weight->defined()) gradient = gradient * along_channels(*weight, input);
  return gradient.to(input.scalar_type());
}

}  // namespace

void register_sync_batch_norm() {
  kernels_for("aten", kManagedKey)
      .impl("batch_norm_stats", stats)
      .impl("batch_norm_gather_stats_with_counts", gather_stats)
      .impl("batch_norm_elemt", normed)
      .impl("batch_norm_backward_reduce", reduce_backward)
      .impl("batch_norm_backward_elemt", input_backward);
}

}  // namespace innkeeper::torch_layer
