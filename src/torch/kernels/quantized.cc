#include "torch/kernels/quantized.h"

#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include <optional>
#include <utility>

#include "torch/kernels/at_device.h"
#include "torch/kernels/composed_kernels.h"
#include "torch/kernels/copy.h"
#include "torch/kernels/custom_kernels.h"
#include "torch/memory/composed.h"
#include "torch/memory/real_memory.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using c10::DispatchKey;

bool in_whole_bytes(const Tensor& quantized) {
  return quantized.scalar_type() != at::kQUInt4x2 && quantized.scalar_type() != at::kQUInt2x4;
}

bool is_per_channel(const Tensor& quantized) {
  const at::QScheme scheme = quantized.qscheme();
  return scheme == at::kPerChannelAffine || scheme == at::kPerChannelAffineFloatQParams;
}

// The integers behind the tensor, in its geometry.
Tensor integers_of(const Tensor& quantized) {
  if (!in_whole_bytes(quantized)) {
    TORCH_CHECK_NOT_IMPLEMENTED(quantized.is_contiguous() && quantized.storage_offset() == 0,
                                "copy_: quantized tensors of less than a byte an element are copied whole");
    return bytes_of_quantized(quantized);
  }
  Tensor integers = dense_over(quantized, c10::toUnderlying(quantized.scalar_type()));
  copy_geometry(*quantized.unsafeGetTensorImpl(), *integers.unsafeGetTensorImpl());
  return integers;
}

// PyTorch's copy_ between two quantized tensors, with its error messages.
void copy_quantized(const Tensor& source, const Tensor& target, bool non_blocking) {
  TORCH_CHECK(target.qscheme() == source.qscheme(), "Quantized Copy only works with same qscheme");
  TORCH_CHECK(target.scalar_type() == source.scalar_type(), "Quantized copy only works with same dtype");
  copy_from(integers_of(source), integers_of(target), non_blocking);
  at::get_qtensorimpl(target)->set_quantizer_(at::get_qtensorimpl(source)->quantizer());
}

// A copy between two tensors of which at least one is managed, and at least one, maybe the other one, is
// quantized.
Tensor copy_from_quantized(const Tensor& source, const Tensor& target, bool non_blocking) {
  if (source.is_quantized() && target.is_quantized()) {
    copy_quantized(source, target, non_blocking);
    return target;
  }
  TORCH_CHECK(target.is_quantized(),
              "Copying from quantized Tensor to non-quantized Tensor is not allowed, "
              "please use dequantize to get a float Tensor from a quantized Tensor");
  if (!is_managed(target)) return target.copy_(source.cpu());
  static const ManagedOp& copy =
      *new ManagedOp(read_signature(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "")));
  torch::jit::Stack stack{target, source.to(target.device()), non_blocking};
  run_composed(copy, &stack);
  return target;
}

// PyTorch's function puts the quantizer's tensors on the device, where the host's kernels cannot read them.
Tensor empty_per_channel(c10::IntArrayRef size, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory,
                         std::optional<at::MemoryFormat> format) {
  const auto options = at::TensorOptions()
                           .dtype(dtype)
                           .layout(layout)
                           .device(device)
                           .pinned_memory(pin_memory)
                           .merge_memory_format(format);
  return at::new_qtensor(size, options,
                         at::make_per_channel_affine_quantizer(scales.cpu(), zero_points.cpu(), axis,
                                                               c10::typeMetaToScalarType(options.dtype())));
}

// Scales and zero points on the tensor's device, as on CUDA.
Tensor scales_of(const Tensor& self) { return at::native::q_per_channel_scales(self).to(self.device()); }
Tensor zero_points_of(const Tensor& self) {
  return at::native::q_per_channel_zero_points(self).to(self.device());
}

using Dims = c10::IntArrayRef;

}  // namespace

void show_quantized(const Tensor& target, const Tensor& shown) {
  if (!same_geometry(*shown.unsafeGetTensorImpl(), *target.unsafeGetTensorImpl()))
    copy_geometry(*shown.unsafeGetTensorImpl(), *target.unsafeGetTensorImpl());
  at::get_qtensorimpl(target)->set_quantizer_(at::get_qtensorimpl(shown)->quantizer());
}

void own_quantizer(const Tensor& quantized) {
  if (!is_per_channel(quantized)) return;
  at::QTensorImpl& impl = *at::get_qtensorimpl(quantized);
  const auto& its = static_cast<const at::PerChannelAffineQuantizer&>(*impl.quantizer());
  impl.set_quantizer_(at::make_per_channel_affine_quantizer(its.scales().clone(), its.zero_points().clone(),
                                                            its.axis(), its.scalar_type()));
}

void register_quantized() {
  torch::Library& m = kernels_for("aten", DispatchKey::QuantizedPrivateUse1);
  m.impl("_copy_from", &copy_from_quantized);
  m.impl("_empty_affine_quantized", at_device<&at::native::empty_affine_quantized>());
  m.impl("_empty_per_channel_affine_quantized", at_device<&empty_per_channel>());
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("as_strided", &at::native::as_strided_qtensorimpl);
  m.impl("clone", at_device<&at::native::quantized_clone>());
  m.impl("empty.memory_format", at_device<&at::native::empty_unknown_quantized>());
  m.impl("empty_like", at_device<&at::native::empty_like_quantized>());
  m.impl("empty_quantized", at_device<&at::native::empty_quantized>());
  m.impl("empty_strided", at_device<&at::native::empty_strided_unknown_quantized>());
  m.impl("q_per_channel_axis", &at::native::q_per_channel_axis);
  m.impl("q_per_channel_scales", &scales_of);
  m.impl("q_per_channel_zero_points", &zero_points_of);
  m.impl("q_scale", &at::native::q_scale_quant);
  m.impl("q_zero_point", &at::native::q_zero_point_quant);
  m.impl("qscheme", &at::native::qscheme_quant);
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_quantized_);
  m.impl("squeeze", static_cast<Tensor (*)(const Tensor&)>(&at::native::squeeze_quantized));
  m.impl("squeeze.dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(&at::native::squeeze_quantized));
  m.impl("squeeze.dims", static_cast<Tensor (*)(const Tensor&, Dims)>(&at::native::squeeze_quantized));
  m.impl("unfold", &at::native::unfold);
  m.impl("unsqueeze", &at::native::unsqueeze_quantized);
  m.impl("view", &at::native::view);
}

}  // namespace innkeeper::torch_layer
