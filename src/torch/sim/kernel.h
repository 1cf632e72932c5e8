// The boxed kernel that every operator of simulated accelerators goes through.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include "torch/plan.h"
#include "torch/sim/cost.h"

namespace innkeeper::torch_layer::sim_backend {

// Runs the operator's CPU kernel on the operands' bytes as one kernel of their accelerator. The arguments are
// on top of the stack, and are replaced by the results.
void run_on_accelerator(const OpPlan& plan, FlopsFn flops, c10::Stack* stack);

// One operator's kernel: holds its plan, so that a call looks nothing up.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::OperatorHandle& op) : plan_(build_plan(op)), flops_(flops_of(op)) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, c10::Stack* stack) {
    run_on_accelerator(*plan_, flops_, stack);
  }

 private:
  const OpPlan* const plan_;
  const FlopsFn flops_;
};

// For operators without a kernel of their own: those of libraries that are loaded later.
void fallback(const c10::OperatorHandle& op, c10::Stack* stack);

}  // namespace innkeeper::torch_layer::sim_backend
