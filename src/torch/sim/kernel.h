// The boxed kernel of all operators of simulated accelerators.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include "torch/registry/signature.h"
#include "torch/registry/work.h"

namespace innkeeper::torch_layer::sim_backend {

// Runs the operator's CPU kernel on the operands' bytes as one kernel of their accelerator. The arguments are
// on top of the stack; the results replace them.
void run_on_accelerator(const Signature& signature, const WorkRule* rule, c10::Stack* stack);

// One operator's kernel. It holds the operator's signature, so that a call needs no lookup.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::OperatorHandle& op)
      : signature_(read_signature(op)), rule_(work_rule(op.schema().name())) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, c10::Stack* stack) {
    run_on_accelerator(*signature_, rule_, stack);
  }

 private:
  const Signature* const signature_;
  const WorkRule* const rule_;
};

// For operators without a kernel of their own: those of libraries that are loaded later.
void fallback(const c10::OperatorHandle& op, c10::Stack* stack);

}  // namespace innkeeper::torch_layer::sim_backend
