// What kernels cost on a simulated accelerator, for its clock: floating-point operations from operand shapes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

#include "torch/sim/kernel_call.h"

namespace innkeeper::torch_layer::sim_backend {

// Floating-point operations of a call, from its operands and its first result (undefined if it has none).
using FlopsFn = double (*)(std::span<const Operand> operands, const at::Tensor& result);

// The rule for an operator; nullptr for those that memory bandwidth bounds, whose arithmetic costs nothing
// extra.
FlopsFn flops_of(const c10::OperatorHandle& op);

}  // namespace innkeeper::torch_layer::sim_backend
