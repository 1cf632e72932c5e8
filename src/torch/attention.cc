// Scaled dot product attention asks the device that computes which kernel it would choose, so that the
// managed device takes the same one, backward included.
//
// The host and simulated accelerators: the CPU's choice. Where a CUDA node computes the choice is the math
// kernel: fused kernels keep state for their backward that is private to a device kind, and a choice cannot
// bind the backward to the node that ran the forward.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

#include <optional>

#include "torch/host_kernels.h"

namespace innkeeper::torch_layer {
namespace {

constexpr auto kMath = static_cast<int64_t>(sdp::SDPBackend::math);

bool is_plain(const at::Tensor& x) {
  return !x.is_nested() && !x.is_sparse() && !x.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// A CPU tensor of the same geometry without any memory: who chooses looks at nothing else.
at::Tensor outline_of(const at::Tensor& x) {
  static const auto& nowhere =
      *new c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(c10::kCPU)),
                        nullptr, /*resizable=*/false);
  auto outline = c10::make_intrusive<c10::TensorImpl>(c10::Storage(nowhere),
                                                      c10::DispatchKeySet(c10::DispatchKey::CPU), x.dtype());
  outline->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  if (x.requires_grad()) outline->set_requires_grad(true);
  return at::Tensor(std::move(outline));
}

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  const bool has_mask = mask.has_value() && mask->defined();
  if (!is_plain(query) || !is_plain(key) || !is_plain(value) || (has_mask && !is_plain(*mask))) return kMath;
  if (!runs_host_kernels()) return kMath;
  return at::_ops::_fused_sdp_choice::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::CPU), outline_of(query), outline_of(key), outline_of(value),
      has_mask ? std::optional<at::Tensor>(outline_of(*mask)) : std::nullopt, dropout_p, is_causal, scale,
      enable_gqa);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", choose_attention); }

}  // namespace
}  // namespace innkeeper::torch_layer

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &innkeeper::torch_layer::choose_attention)

}  // namespace at::native
