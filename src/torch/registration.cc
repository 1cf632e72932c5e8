// The device's kernels with the dispatcher: the boxed function for every operator that computes, one by one,
// and for whatever libraries bring later as the backend's fallback.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "torch/fallback.h"
#include "torch/handle.h"
#include "torch/register_ops.h"
#include "torch/sparse_ops.h"

namespace innkeeper::torch_layer {
namespace {

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const OpPlan* plan) : op_(plan) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    run_managed(op_, stack);
  }

 private:
  ManagedOp op_;
};

void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_managed(ManagedOp(plan_of(op)), stack);
}

}  // namespace

void register_operators() {
  register_sparse_operators();
  // Never taken back: managed tensors may outlive everything.
  static auto& registrations = *new std::vector<c10::RegistrationHandleRAII>;
  for (const c10::OperatorHandle& op : ops_to_register(kManagedKey)) {
    registrations.push_back(c10::Dispatcher::singleton().registerImpl(
        op.operator_name(), kManagedKey,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(build_plan(op))),
        std::nullopt, nullptr, "innkeeper: managed device"));
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}

// A copy resolves these bits itself; above it their fallbacks would ask for a copy to resolve them, without
// end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace innkeeper::torch_layer
