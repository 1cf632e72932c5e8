#include "torch/distributed/sparse_collectives.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include "torch/kernels/custom_kernels.h"
#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {
namespace {

// Calls the process group as for dense tensors; it handles sparse ones.
void as_dense(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(kManagedKey), stack);
}

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().operator_name(),
                              " takes no sparse managed tensors, all_reduce of a COO tensor alone does: "
                              "to_dense() makes one that it takes");
}

}  // namespace

void register_sparse_collectives() {
  auto& dispatcher = c10::Dispatcher::singleton();
  torch::Library& coo = kernels_for("c10d", c10::DispatchKey::SparsePrivateUse1);
  torch::Library& compressed = kernels_for("c10d", c10::DispatchKey::SparseCsrPrivateUse1);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = name.name.starts_with("c10d::") ? dispatcher.findSchema(name) : std::nullopt;
    if (!op.has_value() || !op->hasKernelForDispatchKey(kManagedKey)) continue;
    coo.impl(name.name.c_str(), name.name == "c10d::allreduce_"
                                    ? torch::CppFunction::makeFromBoxedFunction<&as_dense>()
                                    : torch::CppFunction::makeFromBoxedFunction<&refuse>());
    compressed.impl(name.name.c_str(), torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
}

}  // namespace innkeeper::torch_layer
