#include "torch/sim/cost.h"

#include <ATen/core/function_schema.h>

#include <array>
#include <string_view>

namespace innkeeper::torch_layer::sim_backend {
namespace {

// The operand at an argument's position; nullptr if it is not on the accelerator or not given.
const at::Tensor* argument(std::span<const Operand> operands, size_t position) {
  for (const Operand& operand : operands) {
    if (operand.argument == position) return &operand.tensor;
  }
  return nullptr;
}

double numel(const at::Tensor* tensor) {
  return tensor == nullptr ? 0 : static_cast<double>(tensor->numel());
}

double size(const at::Tensor* tensor, int64_t dim) {
  return tensor == nullptr || tensor->dim() == 0 ? 1 : static_cast<double>(tensor->size(dim));
}

// Each element of the product is a sum over the factor's last dimension.
template <size_t kFactor>
double product(std::span<const Operand> operands, const at::Tensor& result) {
  return 2 * numel(&result) * size(argument(operands, kFactor), -1);
}

// Each output element sums over the weight's elements of one output channel; a transposed convolution spreads
// each input element over them. Which one it is shows in the sizes: the side of more positions does the work.
double convolution_work(const at::Tensor* output, const at::Tensor* input, const at::Tensor* weight) {
  if (weight == nullptr || weight->dim() == 0 || weight->numel() == 0) return 0;
  const double per_position = numel(weight) / size(weight, 0);
  const bool transposed = output != nullptr && input != nullptr && input->dim() > 1 && output->dim() > 1 &&
                          input->size(1) == weight->size(0) && output->size(1) != weight->size(0);
  return 2 * numel(transposed ? input : output) * per_position;
}

double convolution(std::span<const Operand> operands, const at::Tensor& result) {
  return convolution_work(&result, argument(operands, 0), argument(operands, 1));
}

// The gradients of the input and of the weight cost as much as the forward pass, each.
double convolution_backward(std::span<const Operand> operands, const at::Tensor&) {
  return 2 * convolution_work(argument(operands, 0), argument(operands, 1), argument(operands, 2));
}

// Two products over the keys for each query: with q, k, v of (batch, heads, length, width).
template <size_t kQuery, int kProducts>
double attention(std::span<const Operand> operands, const at::Tensor&) {
  const at::Tensor* query = argument(operands, kQuery);
  const at::Tensor* key = argument(operands, kQuery + 1);
  return 2 * kProducts * numel(query) * size(key, -2);
}

struct Rule {
  std::string_view name;
  FlopsFn flops;
};

constexpr std::array kRules = {
    Rule{"mm", &product<0>},
    Rule{"mv", &product<0>},
    Rule{"bmm", &product<0>},
    Rule{"dot", [](std::span<const Operand> operands,
                   const at::Tensor&) { return 2 * numel(argument(operands, 0)); }},
    Rule{"addmm", &product<1>},
    Rule{"addmm_", &product<1>},
    Rule{"addmv", &product<1>},
    Rule{"baddbmm", &product<1>},
    Rule{"baddbmm_", &product<1>},
    Rule{"_addmm_activation", &product<1>},
    Rule{"linear", &product<0>},
    Rule{"convolution", &convolution},
    Rule{"_convolution", &convolution},
    Rule{"convolution_overrideable", &convolution},
    Rule{"convolution_backward", &convolution_backward},
    Rule{"convolution_backward_overrideable", &convolution_backward},
    Rule{"_scaled_dot_product_flash_attention_for_cpu", &attention<0, 2>},
    Rule{"_scaled_dot_product_fused_attention_overrideable", &attention<0, 2>},
    Rule{"_scaled_dot_product_flash_attention_for_cpu_backward", &attention<1, 5>},
    Rule{"_scaled_dot_product_fused_attention_overrideable_backward", &attention<1, 5>},
};

}  // namespace

FlopsFn flops_of(const c10::OperatorHandle& op) {
  std::string_view name = op.schema().name();
  if (!name.starts_with("aten::")) return nullptr;
  name.remove_prefix(6);
  for (const Rule& rule : kRules) {
    if (rule.name == name) return rule.flops;
  }
  return nullptr;
}

}  // namespace innkeeper::torch_layer::sim_backend
