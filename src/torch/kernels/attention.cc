// Scaled dot product attention. The managed device takes the kernel that the computing device would choose,
// backward included: the derivative formula of the kernel that ran.
//
// On the host and simulated accelerators it is the CPU's choice; on GPUs it is CUDA's. State that a fused
// kernel keeps for its backward is private to a kind of device. Then all computing nodes are of one kind, so
// the backward finds that kind on every node. If the machine has both GPUs and simulated accelerators, the
// choice is the math kernel.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>

#include <optional>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::torch_layer {
namespace {

constexpr auto kMath = static_cast<int64_t>(sdp::SDPBackend::math);
constexpr auto kFlash = static_cast<int64_t>(sdp::SDPBackend::flash_attention);
// CUDA's flash kernel requires head sizes that are multiples of this.
constexpr int64_t kHeadMultiple = 8;

bool is_plain(const at::Tensor& x) { return !x.is_nested() && !x.is_sparse(); }

bool is_symbolic(const at::Tensor& x) { return x.unsafeGetTensorImpl()->has_symbolic_sizes_strides(); }

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  const bool has_mask = mask.has_value() && mask->defined();
  if (!is_plain(query) || !is_plain(key) || !is_plain(value) || (has_mask && !is_plain(*mask))) return kMath;
  c10::Device device = c10::kCPU;
  c10::DispatchKey kernels = c10::DispatchKey::CPU;
  if (runs_cuda_kernels()) {
    if (is_symbolic(query) || is_symbolic(key) || is_symbolic(value)) return kMath;
    const NodeBackend& home = runtime().backend(home_node());
    device = home.device;
    kernels = home.key;
  } else if (!runs_host_kernels()) {
    return kMath;
  }
  const auto shaped = [&](const at::Tensor& x) { return shape_only(x, device, kernels); };
  return at::_ops::_fused_sdp_choice::redispatch(
      c10::DispatchKeySet(kernels), shaped(query), shaped(key), shaped(value),
      has_mask ? std::optional<at::Tensor>(shaped(*mask)) : std::nullopt, dropout_p, is_causal, scale,
      enable_gqa);
}

at::Tensor padded(const at::Tensor& x) {
  const int64_t missing = (kHeadMultiple - x.size(-1) % kHeadMultiple) % kHeadMultiple;
  return missing == 0 ? x : at::constant_pad_nd(x, {0, missing});
}

bool is_to_be_moved(const at::Tensor& x) { return x.defined() && x.device().is_cpu() && moves_cpu_tensors(); }

// PyTorch composes this operator by the device's type, and takes the CPU's flash kernel for a type that it
// does not know. It refuses operands of two devices before any kernel sees them, so CPU operands are moved
// here (mixed_move.h).
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                     std::optional<double> scale, bool enable_gqa) {
  const bool has_mask = mask.has_value() && mask->defined();
  if (is_to_be_moved(query) || is_to_be_moved(key) || is_to_be_moved(value) ||
      (has_mask && is_to_be_moved(*mask))) [[unlikely]] {
    const c10::Device device = is_managed(query) ? query.device()
                               : is_managed(key) ? key.device()
                                                 : value.device();
    const auto there = [&](const at::Tensor& x) {
      return is_to_be_moved(x) ? note_and_move("aten::scaled_dot_product_attention", x, device) : x;
    };
    return at::scaled_dot_product_attention(there(query), there(key), there(value),
                                            has_mask ? std::optional<at::Tensor>(there(*mask)) : std::nullopt,
                                            dropout_p, is_causal, scale, enable_gqa);
  }
  // CUDA's flash kernel supports no mask.
  const bool may_be_flash = runs_cuda_kernels() && !has_mask;
  if (!may_be_flash ||
      choose_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa) != kFlash) {
    return at::native::scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal, scale,
                                                    enable_gqa);
  }
  const int64_t head = query.size(-1);
  const double its_scale = sdp::calculate_scale(query, scale).expect_float();
  const at::Tensor output = std::get<0>(
      at::_scaled_dot_product_flash_attention(padded(query), padded(key), padded(value), dropout_p, is_causal,
                                              /*return_debug_mask=*/false, its_scale));
  return output.size(-1) == head ? output : output.slice(-1, 0, head);
}

}  // namespace

// Both keys, because the operator is CompositeImplicit: see random_ops.cc.
void register_attention() {
  kernels_for("aten", kManagedAutogradKey).impl("scaled_dot_product_attention", attention);
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("_fused_sdp_choice", choose_attention);
  m.impl("scaled_dot_product_attention", attention);
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
}

}  // namespace innkeeper::torch_layer
