// Dropout draws random numbers although its schema has no Generator. On the managed device it is composed of
// operators that have one, so it draws from the thread's stream. The default generator's state need not be
// swapped.
//
// dropout gives the bits of nn.Dropout on a CPU, backward included. For an out-of-tree device PyTorch would
// take native_dropout, which rounds the scale differently (p=0.15 shows it). native_dropout gives the bits of
// native_dropout on a CPU.
#include <ATen/ATen.h>

#include <tuple>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"

namespace innkeeper::torch_layer {
namespace {

at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.sym_numel() == 0) return input;
  if (p == 1) return input.mul(at::zeros({}, input.options()));
  if (!runs_host_kernels()) return std::get<0>(at::native_dropout(input, p, train));
  at::Tensor noise = at::empty_like(input);
  noise.bernoulli_(1 - p);
  noise.div_(1 - p);
  return input.mul(noise);
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  const at::TensorOptions mask_options = input.options().dtype(at::kBool);
  if (input.sym_numel() == 0) return {input, at::empty_like(input, mask_options)};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, mask_options)};
  const double kept = 1 - p;
  at::Tensor mask = at::empty_like(input, mask_options);
  mask.bernoulli_(kept);
  at::Tensor output = input.mul(mask);
  output.mul_(kept == 0 ? 0.0 : 1 / kept);
  return {output, mask};
}

}  // namespace

// dropout is CompositeImplicit: with a kernel only for the backend it would lose its gradient. So its kernel
// is also registered for autograd, which then differentiates the operators inside.
void register_random_operators() {
  kernels_for("aten", kManagedAutogradKey).impl("dropout", dropout);
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("dropout", dropout);
  m.impl("native_dropout", native_dropout);
}

}  // namespace innkeeper::torch_layer
