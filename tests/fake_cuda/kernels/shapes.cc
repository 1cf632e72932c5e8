#include "kernels/shapes.h"

#include <utility>

#include "kernels/plain_call.h"
#include "kernels/values.h"

namespace fake_cuda {
namespace {

at::Tensor meta_of(const at::Tensor& tensor) {
  if (!tensor.is_cuda() && tensor.dim() == 0) return tensor;  // a number
  const auto options = tensor.options().device(at::kMeta).pinned_memory(false);
  return at::empty_strided(tensor.sizes(), tensor.strides(), options);
}

}  // namespace

std::optional<std::vector<c10::IValue>> results_by_shape(const c10::OperatorHandle& op,
                                                         const std::vector<c10::IValue>& arguments,
                                                         c10::Device device) {
  const c10::FunctionSchema& schema = op.schema();
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // meta, real
  Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool writes = is_written(schema.arguments()[i]);
    const c10::IValue value = is_generator(schema.arguments()[i]) ? c10::IValue() : arguments[i];
    stack.push_back(with_device(replace_tensors(value,
                                                [&](const at::Tensor& tensor) {
                                                  at::Tensor meta = meta_of(tensor);
                                                  if (writes) written.emplace_back(meta, tensor);
                                                  return meta;
                                                }),
                                at::kMeta));
  }
  try {
    plain_call(op, stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  for (const auto& [meta, real] : written) {
    if (meta.sizes() == real.sizes()) continue;
    real.resize_(meta.sizes());
    // Strides of the operator's order.
    real.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
  }
  std::vector<c10::IValue> results;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (const int argument = argument_of_result(schema, i); argument >= 0) {
      results.push_back(arguments[static_cast<size_t>(argument)]);
      continue;
    }
    if (!stack[i].isTensor() && !stack[i].isTensorList()) return std::nullopt;
    results.push_back(replace_tensors(stack[i], [&](const at::Tensor& meta) {
      return meta.is_meta() ? at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(device))
                            : meta;
    }));
  }
  return results;
}

}  // namespace fake_cuda
