// Operators that make sparse and nested managed tensors, show their parts, or copy part by part. They are
// LibTorch's own kernels, which use the parts as ordinary dense managed tensors and touch no bytes
// themselves. All other operators run on the host (composed_kernels.h).
#include <ATen/NativeFunctions.h>

#include "torch/kernels/at_device.h"
#include "torch/kernels/custom_kernels.h"

namespace innkeeper::torch_layer {

namespace {

void register_coordinate_parts() {
  torch::Library& m = kernels_for("aten", c10::DispatchKey::SparsePrivateUse1);
  m.impl("_coalesced_", &at::native::_coalesced_sparse_);
  m.impl("_dimI", &at::native::sparse_dim_sparse);
  m.impl("_dimV", &at::native::dense_dim_sparse);
  m.impl("_indices", &at::native::_indices_sparse);
  m.impl("_nnz", &at::native::_nnz_sparse);
  m.impl("_pin_memory", &at::native::_pin_memory_sparse_coo);
  m.impl("_sparse_coo_tensor_with_dims", at_device<&at::native::new_with_dims_sparse>());
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         at_device<&at::native::new_with_dims_and_tensor_sparse_symint>());
  m.impl("_values", &at::native::_values_sparse);
  m.impl("clone", at_device<&at::native::clone_sparse>());
  m.impl("copy_", at_device<&at::native::copy_sparse_wrapper_>());
  m.impl("copy_sparse_to_sparse_", at_device<&at::native::copy_sparse_>());
  m.impl("dense_dim", &at::native::dense_dim_sparse);
  m.impl("empty.memory_format", at_device<&at::native::empty_sparse>());
  m.impl("empty_like", at_device<&at::native::empty_like_sparse_coo>());
  m.impl("indices", &at::native::indices_sparse);
  m.impl("is_coalesced", &at::native::is_coalesced_sparse);
  m.impl("is_pinned", &at::native::is_pinned_sparse_coo);
  m.impl("resize_as_sparse_", at_device<&at::native::resize_as_sparse_>());
  m.impl("sparse_dim", &at::native::sparse_dim_sparse);
  m.impl("sparse_resize_", at_device<&at::native::sparse_resize_>());
  m.impl("sparse_resize_and_clear_", at_device<&at::native::sparse_resize_and_clear_>());
  m.impl("values", &at::native::values_sparse);
  m.impl("zero_", at_device<&at::native::zero_sparse_>());
}

void register_compressed_parts() {
  torch::Library& m = kernels_for("aten", c10::DispatchKey::SparseCsrPrivateUse1);
  m.impl("_nnz", &at::native::_nnz_sparse_csr);
  m.impl("_pin_memory", &at::native::_pin_memory_sparse_compressed);
  m.impl("ccol_indices", &at::native::ccol_indices_sparse_csr);
  m.impl("clone", at_device<&at::native::clone_sparse_compressed>());
  m.impl("col_indices", &at::native::col_indices_sparse_csr);
  m.impl("copy_", at_device<&at::native::copy_sparse_compressed_>());
  m.impl("crow_indices", &at::native::crow_indices_sparse_csr);
  m.impl("dense_dim", &at::native::dense_dim_sparse_csr);
  m.impl("empty.memory_format", at_device<&at::native::empty_sparse_compressed>());
  m.impl("empty_like", at_device<&at::native::empty_like_sparse_csr>());
  m.impl("fill_.Scalar", &at::native::fill_sparse_csr_);
  m.impl("is_pinned", &at::native::is_pinned_sparse_compressed);
  m.impl("normal_", &at::native::normal_sparse_csr_);
  m.impl("resize_as_sparse_", at_device<&at::native::resize_as_sparse_compressed_>());
  m.impl("row_indices", &at::native::row_indices_sparse_csr);
  m.impl("sparse_dim", &at::native::sparse_dim_sparse_csr);
  m.impl("values", &at::native::values_sparse_csr);
  m.impl("zero_", at_device<&at::native::zero_sparse_csr_>());
}

// A nested tensor's sizes, strides and offsets are on the host for every device, because its constructor
// reads them. A program that loads a file with map_location has them on the managed device.
at::Tensor nested_view(const at::Tensor& buffer, const at::Tensor& sizes, const at::Tensor& strides,
                       const at::Tensor& offsets) {
  return at::native::_nested_view_from_buffer(buffer, sizes.cpu(), strides.cpu(), offsets.cpu());
}

at::Tensor nested_view_copy(const at::Tensor& buffer, const at::Tensor& sizes, const at::Tensor& strides,
                            const at::Tensor& offsets) {
  return nested_view(buffer.clone(), sizes, strides, offsets);
}

void register_nested_parts() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("_nested_tensor_from_tensor_list", &at::native::_nested_tensor_from_tensor_list);
  m.impl("_nested_view_from_buffer", &nested_view);
  m.impl("_nested_view_from_buffer_copy", &nested_view_copy);
  torch::Library& nested = kernels_for("aten", c10::DispatchKey::NestedTensorPrivateUse1);
  nested.impl("_nested_tensor_size", &at::native::_nested_tensor_size);
  nested.impl("_nested_tensor_storage_offsets", &at::native::_nested_tensor_storage_offsets);
  nested.impl("_nested_tensor_strides", &at::native::_nested_tensor_strides);
}

}  // namespace

void register_parts() {
  register_coordinate_parts();
  register_compressed_parts();
  register_nested_parts();
}

}  // namespace innkeeper::torch_layer
