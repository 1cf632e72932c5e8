// What becomes of operands that are not all on one managed device.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "torch/registry/managed_op.h"

namespace innkeeper::torch_layer {

// Throws PyTorch's own "same device" error where CUDA would: managed tensors beside CPU tensors that are
// neither 0-dim nor listed.
void refuse_mixed_devices(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments);

// Runs an operator over lists that lie on several devices element by element, as CUDA does: a copy between
// devices is welcome then, and so are lists whose elements at one place are on one device.
// Returns false, and does nothing, where all are on one; throws where CUDA refuses (fused optimizers).
bool run_one_by_one(const ManagedOp& op, torch::jit::Stack* stack);

}  // namespace innkeeper::torch_layer
