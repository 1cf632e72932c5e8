#include "torch/registry/register_ops.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>

namespace innkeeper::torch_layer {
namespace {

using c10::DispatchKey;

// Factories, copies and operators on storages or on the tensor object, without the namespace.
constexpr std::string_view kOwnKernels[] = {"_copy_from",
                                            "_copy_from_and_resize",
                                            "_fw_primal",
                                            "_lazy_clone",
                                            "_local_scalar_dense",
                                            "_make_dual",
                                            "_pack_padded_sequence",
                                            "_pin_memory",
                                            "_resize_output",
                                            "_resize_output_",
                                            "_to_copy",
                                            "_unsafe_view",
                                            "clone",
                                            "copy",
                                            "copy_",
                                            "detach_",
                                            "is_pinned",
                                            "is_set_to",
                                            "lift",
                                            "lift_fresh_copy",
                                            "record_stream",
                                            "rename_",
                                            "requires_grad_",
                                            "resize",
                                            "resize_",
                                            "resize_as",
                                            "resize_as_",
                                            "resize_as_sparse",
                                            "resize_as_sparse_",
                                            "set",
                                            "set_",
                                            "sparse_resize_"};

bool is_factory(std::string_view name) {
  return name.ends_with("_like") || name.starts_with("new_") || name.starts_with("empty");
}

// Whether a composite operator has a kernel of its own and a derivative formula (silu_backward). Backends
// with a kernel use the formula, and get other bits if they decompose.
bool has_formula_and_kernel(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CPU) && op.hasKernelForDispatchKey(DispatchKey::Autograd);
}

}  // namespace

bool needs_own_kernel(const Signature& signature) {
  if (signature.is_view || signature.metadata_write || !signature.tensor_args) return true;
  std::string_view name = signature.op.schema().name();
  if (signature.aten) name.remove_prefix(6);
  return is_factory(name) ||
         std::find(std::begin(kOwnKernels), std::end(kOwnKernels), name) != std::end(kOwnKernels);
}

std::vector<c10::OperatorHandle> ops_to_register(DispatchKey key) {
  std::vector<c10::OperatorHandle> result;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    auto op = dispatcher.findSchema(name);
    if (!op.has_value() || op->hasKernelForDispatchKey(key)) continue;
    const bool explicit_composite =
        op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
    if (!explicit_composite && op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
        !has_formula_and_kernel(*op)) {
      continue;
    }
    std::unique_ptr<const Signature> signature(read_signature(*op));
    if (!needs_own_kernel(*signature)) result.push_back(*op);
  }
  return result;
}

}  // namespace innkeeper::torch_layer
