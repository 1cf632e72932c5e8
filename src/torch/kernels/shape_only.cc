#include "torch/kernels/host_kernels.h"

namespace innkeeper::torch_layer {

at::Tensor shape_only(const at::Tensor& x, c10::Device device, c10::DispatchKey key) {
  c10::Storage nowhere(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device), nullptr,
                       /*resizable=*/false);
  auto shaped = c10::make_intrusive<c10::TensorImpl>(std::move(nowhere), c10::DispatchKeySet(key), x.dtype());
  if (x.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    shaped->set_sizes_and_strides(x.sym_sizes(), x.sym_strides(), x.sym_storage_offset());
  } else {
    shaped->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  }
  if (x.requires_grad()) shaped->set_requires_grad(true);
  return at::Tensor(std::move(shaped));
}

}  // namespace innkeeper::torch_layer
