// Floating-point operations of an operator, by the shapes of its operands and results, and their precision.
// The clock of simulated accelerators, records, and the price of kernels that are not timed (kernel_clock.h)
// use them.
//
// A multiplication with its addition counts as two, as torch.utils.flop_counter has it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

#include "cost/gpu_model.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

using Shapes = c10::ArrayRef<const at::Tensor*>;

struct WorkRule;

// The rule of the operator of this name, as aten::mm; nullptr where it does little more than to touch its
// bytes. Callers keep what they got.
IK_EXPORT const WorkRule* work_rule(std::string_view name);

// The same for callers that can keep nothing: the calling thread remembers a rule by where its name stands.
// Names live as long as their operators do; a name that stands where another one stood gets that one's rule.
const WorkRule* remembered_work_rule(std::string_view name);

// What one call does, without its bytes. `operands`: the tensors among its arguments, in order, those of
// lists one by one, without those that were not given. `results`: the tensors that it returned, in the same
// order; a gradient that was not requested is left out. Float32 products are of tf32 where the process allows
// that.
IK_EXPORT cost::KernelCost work_of(const WorkRule* rule, Shapes operands, Shapes results);

}  // namespace innkeeper::torch_layer
