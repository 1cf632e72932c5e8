#include "torch/memory/composed.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>

#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/memory/real_memory.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using c10::DispatchKey;

at::SparseTensorImpl& coo(const Tensor& x) {
  return static_cast<at::SparseTensorImpl&>(*x.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl& compressed(const Tensor& x) {
  return static_cast<at::SparseCsrTensorImpl&>(*x.unsafeGetTensorImpl());
}

// Dispatch keys of a kind of tensor on the device of `part`.
c10::DispatchKeySet keys(DispatchKey kind, const Tensor& part) {
  return c10::DispatchKeySet(kind) | c10::DispatchKeySet(part.key_set().highestBackendKey());
}

}  // namespace

Parts parts_of(const Tensor& composed) {
  if (composed.is_quantized()) return {bytes_of_quantized(composed)};
  if (composed.is_nested())
    return {at::native::get_nested_tensor_impl(composed)->get_unsafe_storage_as_tensor()};
  if (composed.layout() == c10::kSparse) return {coo(composed).indices(), coo(composed).values()};
  const at::SparseCsrTensorImpl& impl = compressed(composed);
  return {impl.compressed_indices(), impl.plain_indices(), impl.values()};
}

void set_parts(const Tensor& target, const Parts& parts, const Tensor& shape_of) {
  if (target.layout() == c10::kSparse) {
    const at::SparseTensorImpl& source = coo(shape_of);
    coo(target).raw_resize_(source.sparse_dim(), source.dense_dim(), shape_of.sizes());
    coo(target).set_indices_and_values_unsafe(parts[0], parts[1]);
    coo(target).set_coalesced(source.coalesced());
  } else {
    compressed(target).set_member_tensors(parts[0], parts[1], parts[2], shape_of.sizes());
  }
}

Tensor assemble(const Tensor& like, const Parts& parts) {
  if (like.is_quantized()) return quantized_over(parts[0], like);
  if (like.is_nested()) {
    const at::native::NestedTensorImpl* const shape = at::native::get_nested_tensor_impl(like);
    return at::detail::make_tensor<at::native::NestedTensorImpl>(
        parts[0], shape->get_nested_sizes(), shape->get_nested_strides(), shape->get_storage_offsets());
  }
  // The constructor makes empty parts on the current device before set_parts() replaces them.
  const AtIndex at(is_managed(parts[0]) ? parts[0].device().index() : current_index());
  Tensor made;
  if (like.layout() == c10::kSparse) {
    made = at::detail::make_tensor<at::SparseTensorImpl>(keys(DispatchKey::Sparse, parts[0]), like.dtype());
  } else {
    made = at::detail::make_tensor<at::SparseCsrTensorImpl>(keys(DispatchKey::SparseCsr, parts[0]),
                                                            parts[0].device(), like.layout(), like.dtype());
  }
  set_parts(made, parts, like);
  return made;
}

bool same_coalesced(const Tensor& a, const Tensor& b) {
  return a.layout() != c10::kSparse || coo(a).coalesced() == coo(b).coalesced();
}

Tensor dense_over(const Tensor& quantized, at::ScalarType dtype) {
  return Tensor(c10::make_intrusive<c10::TensorImpl>(c10::Storage(quantized.storage()),
                                                     keys(DispatchKey::Dense, quantized),
                                                     c10::scalarTypeToTypeMeta(dtype)));
}

Tensor bytes_of_quantized(const Tensor& quantized) {
  Tensor bytes = dense_over(quantized, at::kByte);
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(quantized.storage().nbytes())});
  return bytes;
}

Tensor quantized_over(const Tensor& bytes, const Tensor& like) {
  Tensor made = at::detail::make_tensor<at::QTensorImpl>(c10::Storage(bytes.storage()),
                                                         keys(DispatchKey::Quantized, bytes), like.dtype(),
                                                         at::get_qtensorimpl(like)->quantizer());
  copy_geometry(*like.unsafeGetTensorImpl(), *made.unsafeGetTensorImpl());
  return made;
}

}  // namespace innkeeper::torch_layer
