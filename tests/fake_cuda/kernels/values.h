// Visits the values on an operator's stack and replaces every tensor in one.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <utility>

namespace fake_cuda {

template <class Function>
c10::IValue replace_tensors(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(function(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> replaced;
    for (const at::Tensor& tensor : value.toTensorVector()) replaced.push_back(function(tensor));
    return replaced;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> replaced;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      const bool there = tensor.has_value() && tensor->defined();
      replaced.push_back(there ? std::optional<at::Tensor>(function(*tensor)) : tensor);
    }
    return replaced;
  }
  return value;
}

template <class Function>
void for_each_tensor(const c10::IValue& value, Function&& function) {
  (void)replace_tensors(value, [&](const at::Tensor& tensor) {
    function(tensor);
    return tensor;
  });
}

inline c10::IValue with_device(const c10::IValue& value, c10::Device device) {
  return value.isDevice() ? c10::IValue(device) : value;
}

inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

inline bool is_generator(const c10::Argument& argument) {
  return argument.type()->str().find("Generator") != std::string::npos;
}

// Index of the written argument that a result aliases; -1 for a new result.
inline int argument_of_result(const c10::FunctionSchema& schema, size_t result) {
  const c10::AliasInfo* alias = schema.returns()[result].alias_info();
  if (alias == nullptr || !alias->isWrite()) return -1;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* other = schema.arguments()[i].alias_info();
    if (other != nullptr && *other == *alias) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace fake_cuda
