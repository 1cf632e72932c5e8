// Makes kernels for the dispatcher from a boxed function that runs whole operators: run_managed for dense
// managed tensors, and its counterpart for sparse ones.
//
// Thread safety: kernels are registered while the library is loaded; the kernels may be called from any
// thread.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "torch/process/fork.h"
#include "torch/registry/managed_op.h"

namespace innkeeper::torch_layer {

using BoxedFunction = void (*)(const ManagedOp&, torch::jit::Stack*);

// A kernel that holds its operator's signature, which is made once.
template <BoxedFunction Run>
class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const Signature* signature) : op_(signature) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    Run(op_, stack);
  }

 private:
  ManagedOp op_;
};

// A backend's fallback, for operators that libraries define later.
template <BoxedFunction Run>
void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_in_forked_child();  // Before signature_of() takes a lock.
  Run(ManagedOp(signature_of(op)), stack);
}

template <class Kernel>
void register_kernel(const c10::OperatorHandle& op, c10::DispatchKey key, std::unique_ptr<Kernel> kernel,
                     const char* what) {
  // Never unregistered: managed tensors may outlive every other object.
  static auto& registrations = *new std::vector<c10::RegistrationHandleRAII>;
  registrations.push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)), std::nullopt,
      nullptr, what));
}

template <BoxedFunction Run>
void register_boxed(const c10::OperatorHandle& op, c10::DispatchKey key, const char* what) {
  register_kernel(op, key, std::make_unique<BoxedKernel<Run>>(read_signature(op)), what);
}

}  // namespace innkeeper::torch_layer
