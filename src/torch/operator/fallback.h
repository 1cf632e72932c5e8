// The one boxed function that runs every operator on managed tensors.
#pragma once

#include <ATen/core/stack.h>

#include "base/types.h"
#include "torch/registry/managed_op.h"

namespace innkeeper::torch_layer {

class OperatorCall;

// Arguments on the stack; results replace them.
void run_managed(const ManagedOp& op, torch::jit::Stack* stack);

// Where an operator runs that was to run at `node`: on the host instead, if that node has no kernel for it or
// no room for what it returns (soft_placement.h).
NodeId where_to_run(OperatorCall& call, const Signature& signature, NodeId node,
                    c10::ArrayRef<c10::IValue> arguments);

}  // namespace innkeeper::torch_layer
