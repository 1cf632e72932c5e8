// Small operators that the managed device answers by itself, without a node, and the changes that a thread's
// first use makes.
#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "torch/kernels/custom_kernels.h"
#include "torch/memory/handle.h"
#include "torch/operator/operator_call.h"
#include "torch/process/thread_context.h"

namespace innkeeper::torch_layer {
namespace {

// Whether `.data = ` and Module.to may put `from` into the tensor object `self`. All dense tensors, managed
// or not, are plain TensorImpls, so parameters keep their identity: tied weights stay tied, optimizers stay
// valid.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_dense = [](const at::Tensor& x) {
    return x.layout() == at::kStrided && !x.is_quantized() && !x.is_nested() &&
           !x.key_set().has(c10::DispatchKey::Python);
  };
  if (is_dense(self) && is_dense(from)) return true;
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

// Does nothing: the engine orders every reuse of memory after its users (I6).
void record_stream(at::Tensor&, c10::Stream) {}

bool use_cudnn_ctc_loss(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, int64_t) {
  return false;
}
bool use_cudnn_ctc_loss_tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               int64_t) {
  return false;
}

}  // namespace

// Both keys, because the first operator is CompositeImplicit: see random_ops.cc.
void register_small_operators() {
  kernels_for("aten", kManagedAutogradKey)
      .impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("record_stream", record_stream);
  m.impl("_use_cudnn_ctc_loss", use_cudnn_ctc_loss);
  m.impl("_use_cudnn_ctc_loss.Tensor", use_cudnn_ctc_loss_tensor);
}

bool on_first_use_of_thread() {
  static thread_local bool cleared = false;
  if (callers_context() != nullptr) return false;  // Autograd's thread keeps the caller's flag.
  if (!std::exchange(cleared, true)) {
    // The flag is the thread's default, so True cannot be told from a user's choice. A user turns autograd's
    // device thread on after the first use: torch.autograd.set_multithreading_enabled(True).
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  return publish_context();
}

}  // namespace innkeeper::torch_layer
