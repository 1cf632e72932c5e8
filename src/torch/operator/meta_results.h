// The results that an operator would return for given arguments, from PyTorch's meta kernels: types and
// geometry, no bytes.
//
// Costs a few microseconds, so it is for rare cases that need the result before they compute.
//
// Thread safety: all functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "base/types.h"
#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// The tensors among the operator's results. Empty if it has no meta kernel, or if that kernel refuses the
// arguments.
std::vector<at::Tensor> meta_results(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

// Bytes that the operator's fresh results would take.
Bytes bytes_of_results(const Signature& signature, c10::ArrayRef<c10::IValue> arguments);

}  // namespace innkeeper::torch_layer
