// Operators over lists of tensors that do not fit at once.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "torch/registry/managed_op.h"

namespace innkeeper::torch_layer {

// Runs an element-by-element operator over lists in sub-lists whose operands fit the free space. Returns
// false, and does nothing, if all operands fit at once.
bool run_in_sublists(const ManagedOp& op, torch::jit::Stack* stack);

}  // namespace innkeeper::torch_layer
