// The device's kernels with the dispatcher: its own, then the boxed function for every other operator that
// computes, one by one, and for whatever libraries bring later as the backend's fallback.
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <vector>

#include "torch/boxed_kernel.h"
#include "torch/own_kernels.h"
#include "torch/register_ops.h"
#include "torch/sparse_ops.h"

namespace innkeeper::torch_layer {
namespace {

void register_own_kernels() {
  register_factories();
  register_small_operators();
  register_hot_operators();
  register_random_operators();
  register_convolutions();
  register_batch_norm();
  register_attention();
  register_rnns();
  register_autocast();
  register_sparse_parts();
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
  register_sparse_operators();
  for (const c10::OperatorHandle& op : ops_to_register(kManagedKey)) {
    register_boxed<&run_managed>(op, kManagedKey, "innkeeper: managed device");
  }
  kernels_for("_", kManagedKey)
      .fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<&run_managed>>());
  // A copy resolves these bits itself; above it their fallbacks would ask for a copy to resolve them, without
  // end.
  for (const c10::DispatchKey key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    torch::Library& m = kernels_for("aten", key);
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
    m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace innkeeper::torch_layer
