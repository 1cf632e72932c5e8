// Floating-point operations of an operator, by the shapes of its operands and results. The clock of simulated
// accelerators, records, and the price of kernels that are not timed (kernel_clock.h) use it.
//
// A multiplication with its addition counts as two, as torch.utils.flop_counter has it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

using Shapes = c10::ArrayRef<const at::Tensor*>;

// Operations of one call. `operands`: the tensors among its arguments, in order, those of lists one by one,
// without those that were not given. `results`: the tensors that it returned, likewise; a gradient that was
// not requested is left out.
using WorkRule = double (*)(Shapes operands, Shapes results);

// The rule of the operator of this name, as aten::mm; nullptr where it does little more than to touch its
// bytes. Callers keep what they got.
IK_EXPORT WorkRule work_rule(std::string_view name);

}  // namespace innkeeper::torch_layer
