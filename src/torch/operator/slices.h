// Element-wise operators whose operands do not fit at once.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "torch/registry/managed_op.h"

namespace innkeeper::torch_layer {

// Runs an element-wise operator whose operands are larger than every accelerator slice by slice, so that the
// result has an accelerator's bits. Returns false, and does nothing, if the operator cannot be cut.
bool run_in_slices(const ManagedOp& op, torch::jit::Stack* stack);

}  // namespace innkeeper::torch_layer
