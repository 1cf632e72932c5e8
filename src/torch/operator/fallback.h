// The one boxed function that runs every operator on managed tensors.
#pragma once

#include <ATen/core/stack.h>

#include "base/types.h"
#include "torch/registry/managed_op.h"

namespace innkeeper::torch_layer {

class OperatorCall;

// The arguments are on the stack; the results replace them.
void run_managed(const ManagedOp& op, torch::jit::Stack* stack);

// The node that runs an operator meant for `node`: the host instead, if `node` has no kernel for it or no
// free space for its results (soft_placement.h).
NodeId where_to_run(OperatorCall& call, const Signature& signature, NodeId node,
                    c10::ArrayRef<c10::IValue> arguments);

}  // namespace innkeeper::torch_layer
