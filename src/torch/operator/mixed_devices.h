// Treatment of operands that are not all on one managed device.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "torch/registry/managed_op.h"

namespace innkeeper::torch_layer {

// Throws PyTorch's own "same device" error where CUDA would: if CPU tensors stand beside managed tensors and
// are neither 0-dim nor among the operands that CUDA takes from the CPU.
void refuse_mixed_devices(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments);

// Runs an operator over lists that lie on several devices element by element, as CUDA does. A copy between
// devices works this way, and so do lists whose elements at one position are on one device. Returns false,
// and does nothing, if all are on one device. Throws where CUDA refuses (fused optimizers).
bool run_one_by_one(const ManagedOp& op, torch::jit::Stack* stack);

}  // namespace innkeeper::torch_layer
