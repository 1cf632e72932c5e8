// What an operator would return for these arguments, by PyTorch's meta kernels: types and geometry, no bytes.
//
// Costs a few microseconds: for the rare cases that must know before they compute.
//
// Thread safety: all functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "base/types.h"
#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// The tensors among its results. Empty where it has no meta kernel, or that refuses.
std::vector<at::Tensor> meta_results(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

// The memory that they would take.
Bytes bytes_of_results(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

}  // namespace innkeeper::torch_layer
