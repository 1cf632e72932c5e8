#include "torch/registry/work.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace innkeeper::torch_layer {
namespace {

const at::Tensor* at_place(Shapes tensors, size_t place) {
  return place < tensors.size() ? tensors[place] : nullptr;
}

double numel(const at::Tensor* tensor) {
  return tensor == nullptr ? 0 : static_cast<double>(tensor->numel());
}

// 1 if the tensor has no such dimension.
double size(const at::Tensor* tensor, int64_t dim) {
  if (tensor == nullptr || dim >= tensor->dim() || -dim > tensor->dim()) return 1;
  return static_cast<double>(tensor->size(dim));
}

// Kernel libraries by the switch that allows tf32.
enum class Library : uint8_t { products, convolutions, recurrent };

// Operations of one call.
using Flops = double (*)(Shapes operands, Shapes results);

// ---------------------------------------------------------------- products

// Each element of the result is a sum over the last dimension of factor number kFactor.
template <size_t kFactor>
double product(Shapes operands, Shapes results) {
  return 2 * numel(at_place(results, 0)) * size(at_place(operands, kFactor), -1);
}

// All matrices of the batch are multiplied, and their products are added up.
double summed_batch(Shapes operands, Shapes results) {
  return product<1>(operands, results) * size(at_place(operands, 1), 0);
}

double dot(Shapes operands, Shapes) { return 2 * numel(at_place(operands, 0)); }

// Groups of rows, each with its own matrix. If both operands are matrices, the groups divide the dimension of
// the sum.
double grouped(Shapes operands, Shapes results) {
  const at::Tensor* first = at_place(operands, 0);
  const at::Tensor* second = at_place(operands, 1);
  if (first == nullptr || second == nullptr || first->dim() != 2 || second->dim() != 2)
    return product<0>(operands, results);
  return 2 * numel(first) * size(second, -1);
}

// ---------------------------------------------------------------- convolutions

// Each output element sums over the weight's elements of one output channel. A transposed convolution spreads
// each input element over them. The sizes tell which one it is; the side with more positions determines the
// work.
double convolution_work(const at::Tensor* output, const at::Tensor* input, const at::Tensor* weight) {
  if (weight == nullptr || weight->dim() == 0 || weight->numel() == 0) return 0;
  const double per_position = numel(weight) / size(weight, 0);
  const bool transposed = output != nullptr && input != nullptr && input->dim() > 1 && output->dim() > 1 &&
                          input->size(1) == weight->size(0) && output->size(1) != weight->size(0);
  return 2 * numel(transposed ? input : output) * per_position;
}

double convolution(Shapes operands, Shapes results) {
  return convolution_work(at_place(results, 0), at_place(operands, 0), at_place(operands, 1));
}

bool has_one_like(Shapes results, const at::Tensor* tensor) {
  return tensor != nullptr && std::any_of(results.begin(), results.end(), [&](const at::Tensor* result) {
           return result->sizes() == tensor->sizes();
         });
}

// The gradients of the input and of the weight each cost as much as the forward pass.
double convolution_backward(Shapes operands, Shapes results) {
  const at::Tensor* input = at_place(operands, 1);
  const at::Tensor* weight = at_place(operands, 2);
  const int gradients = (has_one_like(results, input) ? 1 : 0) + (has_one_like(results, weight) ? 1 : 0);
  return gradients * convolution_work(at_place(operands, 0), input, weight);
}

// ---------------------------------------------------------------- attention

// Products over the keys for each query: kQueryProducts of them have the width of queries, and kValueProducts
// the width of values. kQuery: the query's position, in front of the key's and the value's. kLength: the
// keys' dimension in both.
template <size_t kQuery, int kQueryProducts, int kValueProducts, int kLength>
double attention(Shapes operands, Shapes) {
  const at::Tensor* query = at_place(operands, kQuery);
  const double width = size(query, -1);
  if (width == 0) return 0;
  const double pairs = numel(query) / width * size(at_place(operands, kQuery + 1), kLength);
  const double value_width = size(at_place(operands, kQuery + 2), -1);
  return 2 * pairs * (kQueryProducts * width + kValueProducts * value_width);
}

// Layouts: (batch, heads, length, width), and (batch, length, heads, width).
constexpr Flops kAttention = &attention<0, 1, 1, -2>;
constexpr Flops kAttentionBackward = &attention<1, 3, 2, -2>;
constexpr Flops kFlash = &attention<0, 1, 1, -3>;
constexpr Flops kFlashBackward = &attention<1, 3, 2, -3>;

// ---------------------------------------------------------------- recurrent networks

// Each step of each sequence goes through each matrix once, recurrent ones and projections included. Forward
// that is one product. Backward it is two: for the gradients of the step's input and of the weights.
double recurrent(const at::Tensor* input, Shapes weights, int products) {
  const double steps = numel(input) / std::max(1.0, size(input, -1));
  double elements = 0;
  for (const at::Tensor* weight : weights) elements += weight->dim() == 2 ? numel(weight) : 0;
  return 2 * products * steps * elements;
}

// cuDNN's and MIOpen's operators. Operands: the input, all weights, the weights in one buffer, and then
// hidden states, which are the first operands of three dimensions. Later operands include packed outputs, of
// two dimensions.
template <int kProducts>
double recurrent_network(Shapes operands, Shapes) {
  if (operands.empty()) return 0;
  const Shapes others = operands.slice(1);
  const auto* const hidden =
      std::find_if(others.begin(), others.end(), [](const at::Tensor* tensor) { return tensor->dim() == 3; });
  return recurrent(operands[0], others.slice(0, static_cast<size_t>(hidden - others.begin())), kProducts);
}

// oneDNN's operator, of one layer and direction. Operands: the input and two matrices, then biases and hidden
// states.
template <int kProducts>
double recurrent_layer(Shapes operands, Shapes) {
  return operands.size() < 3 ? 0 : recurrent(operands[0], operands.slice(1, 2), kProducts);
}

}  // namespace

struct WorkRule {
  std::string_view name;
  Flops flops;
  Library library = Library::products;
};

namespace {

// ---------------------------------------------------------------- precisions

bool allows_tf32(Library library) {
  using Op = at::Float32Op;
  const Op op = library == Library::products       ? Op::MATMUL
                : library == Library::convolutions ? Op::CONV
                                                   : Op::RNN;
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::CUDA, op);
  // Convolutions and recurrent networks use tf32 unless the program forbids it; products use it only if the
  // program allows it.
  return library == Library::products ? precision == at::Float32Precision::TF32
                                      : precision != at::Float32Precision::IEEE;
}

cost::Precision precision_of(const at::Tensor& tensor, Library library) {
  using cost::Precision;
  switch (tensor.scalar_type()) {
    case at::kDouble:
    case at::kComplexDouble: return Precision::fp64;
    case at::kBFloat16: return Precision::bf16;
    case at::kHalf:
    case at::kComplexHalf: return Precision::fp16;
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e4m3fnuz:
    case at::kFloat8_e5m2:
    case at::kFloat8_e5m2fnuz: return Precision::fp8;
    case at::kChar:
    case at::kByte:
    case at::kQInt8:
    case at::kQUInt8: return Precision::int8;
    default: return allows_tf32(library) ? Precision::tf32 : Precision::fp32;
  }
}

// ---------------------------------------------------------------- the table

constexpr std::array kRules = {
    WorkRule{"aten::mm", &product<0>},
    WorkRule{"aten::mv", &product<0>},
    WorkRule{"aten::bmm", &product<0>},
    WorkRule{"aten::dot", &dot},
    WorkRule{"aten::vdot", &dot},
    WorkRule{"aten::addmm", &product<1>},
    WorkRule{"aten::addmm_", &product<1>},
    WorkRule{"aten::addmv", &product<1>},
    WorkRule{"aten::addmv_", &product<1>},
    WorkRule{"aten::addbmm", &summed_batch},
    WorkRule{"aten::baddbmm", &product<1>},
    WorkRule{"aten::baddbmm_", &product<1>},
    WorkRule{"aten::_addmm_activation", &product<1>},
    WorkRule{"aten::linear", &product<0>},
    WorkRule{"aten::_int_mm", &product<0>},
    WorkRule{"aten::_scaled_mm", &product<0>},
    WorkRule{"aten::_scaled_mm_v2", &product<0>},
    WorkRule{"aten::_grouped_mm", &grouped},
    WorkRule{"aten::_scaled_grouped_mm", &grouped},
    WorkRule{"aten::_scaled_grouped_mm_v2", &grouped},
    WorkRule{"aten::_weight_int8pack_mm", &product<0>},
    WorkRule{"aten::_weight_int4pack_mm", &product<0>},
    WorkRule{"aten::_weight_int4pack_mm_for_cpu", &product<0>},
    WorkRule{"quantized::linear", &product<0>},
    WorkRule{"quantized::linear_relu", &product<0>},
    WorkRule{"quantized::linear_dynamic", &product<0>},
    WorkRule{"quantized::linear_relu_dynamic", &product<0>},
    WorkRule{"mkldnn::_linear_pointwise", &product<0>},
    WorkRule{"mkl::_mkl_linear", &product<0>},
    WorkRule{"aten::convolution", &convolution, Library::convolutions},
    WorkRule{"aten::_convolution", &convolution, Library::convolutions},
    WorkRule{"aten::cudnn_convolution", &convolution, Library::convolutions},
    WorkRule{"aten::cudnn_convolution_relu", &convolution, Library::convolutions},
    WorkRule{"aten::cudnn_convolution_transpose", &convolution, Library::convolutions},
    WorkRule{"aten::mkldnn_convolution", &convolution, Library::convolutions},
    WorkRule{"aten::_slow_conv2d_forward", &convolution, Library::convolutions},
    WorkRule{"aten::_conv_depthwise2d", &convolution, Library::convolutions},
    WorkRule{"aten::conv_depthwise3d", &convolution, Library::convolutions},
    WorkRule{"aten::convolution_overrideable", &convolution, Library::convolutions},
    WorkRule{"mkldnn::_convolution_pointwise", &convolution, Library::convolutions},
    WorkRule{"aten::convolution_backward", &convolution_backward, Library::convolutions},
    WorkRule{"aten::convolution_backward_overrideable", &convolution_backward, Library::convolutions},
    WorkRule{"aten::_scaled_dot_product_flash_attention_for_cpu", kAttention},
    WorkRule{"aten::_scaled_dot_product_flash_attention", kAttention},
    WorkRule{"aten::_scaled_dot_product_efficient_attention", kAttention},
    WorkRule{"aten::_scaled_dot_product_cudnn_attention", kAttention},
    WorkRule{"aten::_scaled_dot_product_fused_attention_overrideable", kAttention},
    WorkRule{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", kAttentionBackward},
    WorkRule{"aten::_scaled_dot_product_flash_attention_backward", kAttentionBackward},
    WorkRule{"aten::_scaled_dot_product_efficient_attention_backward", kAttentionBackward},
    WorkRule{"aten::_scaled_dot_product_cudnn_attention_backward", kAttentionBackward},
    WorkRule{"aten::_scaled_dot_product_fused_attention_overrideable_backward", kAttentionBackward},
    WorkRule{"aten::_flash_attention_forward", kFlash},
    WorkRule{"aten::_efficient_attention_forward", kFlash},
    WorkRule{"aten::_cudnn_attention_forward", kAttention},
    WorkRule{"aten::_flash_attention_backward", kFlashBackward},
    WorkRule{"aten::_efficient_attention_backward", kFlashBackward},
    WorkRule{"aten::mkldnn_rnn_layer", &recurrent_layer<1>, Library::recurrent},
    WorkRule{"aten::mkldnn_rnn_layer_backward", &recurrent_layer<2>, Library::recurrent},
    WorkRule{"aten::_cudnn_rnn", &recurrent_network<1>, Library::recurrent},
    WorkRule{"aten::_cudnn_rnn_backward", &recurrent_network<2>, Library::recurrent},
    WorkRule{"aten::miopen_rnn", &recurrent_network<1>, Library::recurrent},
    WorkRule{"aten::miopen_rnn_backward", &recurrent_network<2>, Library::recurrent},
};

}  // namespace

const WorkRule* work_rule(std::string_view name) {
  const auto* const found =
      std::find_if(kRules.begin(), kRules.end(), [&](const WorkRule& rule) { return rule.name == name; });
  return found == kRules.end() ? nullptr : found;
}

const WorkRule* remembered_work_rule(std::string_view name) {
  struct Known {
    const char* name = nullptr;
    const WorkRule* rule = nullptr;
  };
  constexpr size_t kKept = 256;
  thread_local std::array<Known, kKept> known;
  Known& place = known[(reinterpret_cast<uintptr_t>(name.data()) >> 4) % kKept];
  if (place.name != name.data()) [[unlikely]]
    place = {name.data(), work_rule(name)};
  return place.rule;
}

cost::KernelCost work_of(const WorkRule* rule, Shapes operands, Shapes results) {
  if (rule == nullptr || operands.empty()) return {};
  return {.flops = rule->flops(operands, results), .precision = precision_of(*operands[0], rule->library)};
}

}  // namespace innkeeper::torch_layer
