// The device's kernels with the dispatcher: the boxed function for every operator that computes, one by one,
// and for whatever libraries bring later as the backend's fallback.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "torch/boxed_kernel.h"
#include "torch/handle.h"
#include "torch/register_ops.h"
#include "torch/sparse_ops.h"

namespace innkeeper::torch_layer {

void register_operators() {
  register_sparse_operators();
  for (const c10::OperatorHandle& op : ops_to_register(kManagedKey)) {
    register_boxed<&run_managed>(op, kManagedKey, "innkeeper: managed device");
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<&run_managed>>());
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
