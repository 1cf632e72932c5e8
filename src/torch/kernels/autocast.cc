// Mixed precision on the managed device: torch.autocast("managed") casts as torch.autocast("cuda") does, by
// PyTorch's own lists. The lower precision is float16 unless the program says otherwise, as on CUDA.
#include <ATen/autocast_mode.h>

#include "torch/compat.h"
#include "torch/kernels/own_kernels.h"

namespace innkeeper::torch_layer {
namespace {

at::Tensor binary_cross_entropy_is_unsafe(const at::Tensor&, const at::Tensor&,
                                          const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Many models use "
      "a "
      "sigmoid right before them; combine the two in torch.nn.functional.binary_cross_entropy_with_logits or "
      "torch.nn.BCEWithLogitsLoss, which are safe.");
}

// PyTorch's lists name these without their namespace.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

#define FOR_ALL_RNNS(_) \
  _(lstm, input) \
  _(lstm, data) \
  _(gru, input) \
  _(gru, data) \
  _(rnn_tanh, input) \
  _(rnn_tanh, data) \
  _(rnn_relu, input) \
  _(rnn_relu, data)

}  // namespace

void register_autocast() {
  constexpr c10::DispatchKey kKey = c10::DispatchKey::AutocastPrivateUse1;
  kernels_for("_", kKey).fallback(torch::CppFunction::makeFallthrough());
  torch::Library& m = kernels_for("aten", kKey);
#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  // On CUDA these are cuDNN's _cudnn_rnn, which is cast as a whole.
  FOR_ALL_RNNS(LOWER_PRECISION)
#undef LOWER_PRECISION
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FLOAT32)
#undef FLOAT32
#define FLOAT32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_RESULT)
#undef FLOAT32_RESULT
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(PROMOTE)
#undef PROMOTE
  m.impl("binary_cross_entropy", binary_cross_entropy_is_unsafe);
}

}  // namespace innkeeper::torch_layer
