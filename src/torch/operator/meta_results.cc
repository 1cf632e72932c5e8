#include "torch/operator/meta_results.h"

#include <ATen/ATen.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;
using at::Tensor;

// A meta tensor of the same geometry. Tensors that are not managed stay, because numbers are CPU tensors and
// meta kernels take them.
Tensor without_bytes(const Tensor& tensor) {
  if (!is_managed(tensor) || tensor.layout() != c10::kStrided) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
}

c10::IValue without_bytes(Kind kind, const c10::IValue& value) {
  if (kind == Kind::tensor && value.isTensor()) return without_bytes(value.toTensor());
  if (kind == Kind::tensor_list && value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(without_bytes(tensor));
    return list;
  }
  if (kind == Kind::optional_tensor_list && !value.isNone()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<Tensor>(without_bytes(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (kind == Kind::generator) return {};  // A meta kernel draws no numbers.
  if (kind == Kind::device && value.isDevice() && value.toDevice().type() == kManagedType) {
    return c10::Device(c10::kMeta);
  }
  return value;
}

}  // namespace

std::vector<Tensor> meta_results(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<Tensor> results;
  if (!signature.op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return results;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    stack.push_back(without_bytes(signature.args[i].kind, arguments[i]));
  }
  try {
    signature.op.callBoxed(&stack);
  } catch (const c10::Error&) {
    return results;
  }
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) results.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
    }
  }
  return results;
}

Bytes bytes_of_results(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
  Bytes total{0};
  if (!signature.fresh_results) return total;
  const std::vector<Tensor> results = meta_results(signature, arguments);
  const auto& returns = signature.op.schema().returns();
  for (size_t i = 0; i < results.size(); ++i) {
    // A list of tensors gives more results than the schema has return values; a list of fresh tensors is the
    // only return value of its operator.
    if (i < returns.size() && returns[i].alias_info() != nullptr) continue;
    if (results[i].defined()) total += Bytes(static_cast<int64_t>(results[i].nbytes()));
  }
  return total;
}

}  // namespace innkeeper::torch_layer
