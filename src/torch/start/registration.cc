// Registers the device's kernels with the dispatcher: first its own, then the boxed function for every other
// operator that computes, one by one, and as the backend's fallback for operators that libraries define
// later.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include "torch/distributed/sparse_collectives.h"
#include "torch/kernels/compiled.h"
#include "torch/kernels/composed_kernels.h"
#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/dtype_fallbacks.h"
#include "torch/registry/boxed_kernel.h"
#include "torch/registry/library_operators.h"
#include "torch/registry/register_ops.h"

namespace innkeeper::torch_layer {
namespace {

void register_own_kernels() {
  register_factories();
  register_small_operators();
  register_hot_operators();
  register_one_step();
  register_zero_tensors();
  register_random_operators();
  register_convolutions();
  register_batch_norm();
  register_sync_batch_norm();
  register_group_norm();
  register_rms_norm();
  register_attention();
  register_rnns();
  register_autocast();
  register_parts();
  register_composed_moves();
  register_quantized();
  register_sparse_collectives();
  register_compiled();
}

}  // namespace

torch::Library& kernels_for(const char* name_space, c10::DispatchKey key) {
  static auto& kept = *new std::vector<std::unique_ptr<torch::Library>>;
  kept.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, name_space, key,
                                                  "innkeeper: managed device", 0));
  return *kept.back();
}

void register_operators() {
  register_own_kernels();
  register_composed_operators();
  for (const c10::OperatorHandle& op : ops_to_register(kManagedKey)) {
    if (!register_dtype_fallbacks(op))
      register_boxed<&run_managed>(op, kManagedKey, "innkeeper: managed device");
  }
  kernels_for("_", kManagedKey)
      .fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<&run_managed>>());
  register_for_libraries(kManagedKey,
                         c10::KernelFunction::makeFromBoxedFunction<&boxed_fallback<&run_managed>>(),
                         "innkeeper: managed device");
  // A copy resolves these bits itself. The bits' fallbacks above it would copy the tensor to resolve them,
  // and so recurse without end.
  for (const c10::DispatchKey key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    torch::Library& m = kernels_for("aten", key);
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
    m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace innkeeper::torch_layer
