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

// Throws PyTorch's own "same device" error where CUDA would: managed tensors beside CPU tensors that are
// neither 0-dim nor listed (mixed_devices.cc).
void refuse_mixed_devices(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments);

// Runs an operator over lists that lie on several devices element by element, as CUDA does: a copy between
// devices is welcome then, and so are lists whose elements at one place are on one device (mixed_devices.cc).
// Returns false, and does nothing, where all are on one; throws where CUDA refuses (fused optimizers).
bool run_one_by_one(const ManagedOp& op, torch::jit::Stack* stack);

// Runs an element-by-element operator over lists in sub-lists whose operands fit the room (sublists.cc).
// Returns false, and does nothing, where all fit at once.
bool run_in_sublists(const ManagedOp& op, torch::jit::Stack* stack);

// Runs an element-wise operator whose operands are larger than every accelerator slice by slice, so that its
// bits are an accelerator's (slices.cc). Returns false, and does nothing, where it cannot be cut.
bool run_in_slices(const ManagedOp& op, torch::jit::Stack* stack);

}  // namespace innkeeper::torch_layer
