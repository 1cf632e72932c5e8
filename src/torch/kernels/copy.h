// Copies between managed tensors, CPU tensors and tensors on real accelerators: any dtype, strides and
// broadcast.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace innkeeper::torch_layer {

// Writes `source` into `target`; at least one is managed. With `non_blocking` a copy between a GPU and
// page-locked memory of one layout and dtype runs concurrently with kernels (movement/program_copy.h). The
// program then waits before it reads the copied bytes, as on CUDA. All other bytes for the CPU have arrived
// when this returns.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target);

// The value of a tensor of one element, read on the node that holds its bytes.
at::Scalar read_scalar(const at::Tensor& self);

// Makes a managed storage `size` bytes long and keeps the bytes that fit (hooks: resizePrivateUse1Bytes).
void resize_storage(const c10::Storage& storage, size_t size);

}  // namespace innkeeper::torch_layer
