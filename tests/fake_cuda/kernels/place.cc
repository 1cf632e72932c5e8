#include "kernels/place.h"

#include <ATen/EmptyTensor.h>

#include "runtime/control.h"

namespace fake_cuda {

Place::Place(const at::Tensor& tensor)
    : data_(tensor.numel() == 0 ? nullptr : tensor.data_ptr()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()),
      type_(tensor.scalar_type()),
      conj_(tensor.is_conj()),
      neg_(tensor.is_neg()),
      bytes_(at::detail::computeStorageNbytes(sizes_, strides_, tensor.element_size())) {}

at::Tensor Place::open() const {
  const auto options = at::TensorOptions().dtype(type_).device(at::kCPU);
  if (data_ == nullptr) return at::empty_strided(sizes_, strides_, options);
  char* bytes = fake_cuda_open(data_, bytes_);
  TORCH_CHECK(bytes != nullptr, "a kernel touches memory that is gone");
  at::Tensor tensor = at::from_blob(bytes, sizes_, strides_, options);
  if (conj_) tensor._set_conj(true);
  if (neg_) tensor._set_neg(true);
  return tensor;
}

}  // namespace fake_cuda
