// Tensors that are composed of dense ones: PyTorch's SparseTensorImpl (COO), SparseCsrTensorImpl (CSR, CSC,
// BSR, BSC), NestedTensorImpl and QTensorImpl (quantized), on any device. Their parts hold the memory; the
// tensor itself holds none.
//
// Thread safety: all functions, for different tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace innkeeper::torch_layer {

// Parts by layout. COO: indices and values. Compressed: compressed indices, plain indices and values. Nested:
// the buffer of all its tensors. Quantized: the bytes of its storage.
using Parts = c10::SmallVector<at::Tensor, 3>;

inline constexpr c10::DispatchKeySet kComposedKeys({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                                    c10::DispatchKey::Quantized,
                                                    c10::DispatchKey::NestedTensor});

// (Nested tensors of the jagged layout are Python subclasses, whose operators run on dense tensors.)
inline bool is_composed(const at::Tensor& x) { return x.defined() && x.key_set().has_any(kComposedKeys); }

inline bool is_sparse(const at::Tensor& x) {
  return x.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr}));
}

Parts parts_of(const at::Tensor& composed);

// Gives a sparse `target` these parts and the shape of `shape_of`. It runs no operator, because a running
// operator calls it, too.
void set_parts(const at::Tensor& target, const Parts& parts, const at::Tensor& shape_of);

// A tensor composed like `like`, of other parts, on the parts' device. A quantized tensor shares the
// quantizer of `like`, whose scales and zero points stay on their device.
at::Tensor assemble(const at::Tensor& like, const Parts& parts);

// Whether both or neither of two tensors of one layout are coalesced; true for all layouts but COO.
bool same_coalesced(const at::Tensor& a, const at::Tensor& b);

// A dense tensor of the element type over the whole storage of a quantized one, without a shape.
at::Tensor dense_over(const at::Tensor& quantized, at::ScalarType dtype);

// All bytes of the tensor's storage, as a dense tensor.
at::Tensor bytes_of_quantized(const at::Tensor& quantized);

// A quantized tensor like `like`, over the storage and on the device of `bytes`.
at::Tensor quantized_over(const at::Tensor& bytes, const at::Tensor& like);

}  // namespace innkeeper::torch_layer
