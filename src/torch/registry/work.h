// Floating-point operations of an operator, from the shapes of its operands and results, and their precision.
// The clock of simulated accelerators, traces, and the price of kernels that report no time (kernel_clock.h)
// use them.
//
// A multiplication with its addition counts as two, as in torch.utils.flop_counter.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

#include "cost/gpu_model.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

using Shapes = c10::ArrayRef<const at::Tensor*>;

struct WorkRule;

// The rule of the operator of this name, such as aten::mm; nullptr if it does little more than one pass over
// its bytes. Callers keep the result.
IK_EXPORT const WorkRule* work_rule(std::string_view name);

// The same for callers that cannot keep the result: the calling thread remembers a rule by the address of its
// name. Names live as long as their operators do. A name at an address that another name had before gets that
// one's rule.
const WorkRule* remembered_work_rule(std::string_view name);

// The work of one call, without its bytes. `operands`: the tensors among its arguments, in order, those of
// lists one by one, without absent ones. `results`: the tensors that it returned, in order, without gradients
// that were not requested. Float32 products count as tf32 if the process allows that.
IK_EXPORT cost::KernelCost work_of(const WorkRule* rule, Shapes operands, Shapes results);

}  // namespace innkeeper::torch_layer
