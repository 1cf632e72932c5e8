// What operators compute: floating-point operations, by the shapes of their operands and results. The
// simulated accelerators' clock counts by it, records tell it, and plans price by it what nobody has timed.
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
// without those that were not given. `results`: the same of what it returned; in a backward pass the
// gradients that were not asked for are not among them.
using WorkRule = double (*)(Shapes operands, Shapes results);

// The rule of the operator of this name, as aten::mm; nullptr where it does little more than to touch its
// bytes. Callers keep what they got.
IK_EXPORT WorkRule work_rule(std::string_view name);

}  // namespace innkeeper::torch_layer
