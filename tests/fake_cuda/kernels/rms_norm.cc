// RMS norm, of which the host has the composition alone: computes the fused kernels' results by the plain
// formula.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/run.h"

namespace fake_cuda {
namespace {

// Gradients of y = x * rstd * weight, rstd over the last dimensions.
std::tuple<at::Tensor, at::Tensor> backward(const at::Tensor& gradient, const at::Tensor& x,
                                            at::IntArrayRef shape, const at::Tensor& rstd,
                                            const std::optional<at::Tensor>& weight, std::array<bool, 2>) {
  const auto leading = static_cast<size_t>(x.dim()) - shape.size();
  std::vector<int64_t> all(static_cast<size_t>(x.dim()));
  std::iota(all.begin(), all.end(), 0);
  const at::IntArrayRef outer = at::IntArrayRef(all).slice(0, leading);
  const at::IntArrayRef inner = at::IntArrayRef(all).slice(leading);
  const at::Tensor normed = x * rstd;
  const bool has_weight = weight.has_value() && weight->defined();
  const at::Tensor weighted = has_weight ? gradient * *weight : gradient;
  const at::Tensor of_x = rstd * (weighted - normed * (weighted * normed).mean(inner, /*keepdim=*/true));
  if (!has_weight) return {of_x.to(x.scalar_type()), at::Tensor()};
  const at::Tensor of_weight = leading == 0 ? gradient * normed : (gradient * normed).sum(outer);
  return {of_x.to(x.scalar_type()), of_weight.to(x.scalar_type())};
}

const bool registered = [] {
  static torch::Library host(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  host.impl("_fused_rms_norm_backward", TORCH_FN(backward));
  static torch::Library gpu(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  gpu.impl("_fused_rms_norm", torch::CppFunction::makeFromBoxedFunction<&run_on_gpu>());
  gpu.impl("_fused_rms_norm_backward", torch::CppFunction::makeFromBoxedFunction<&run_on_gpu>());
  return true;
}();

}  // namespace
}  // namespace fake_cuda
