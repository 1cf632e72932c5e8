// Quantized managed tensors: PyTorch's own QTensorImpl over a handle. The block holds the integers; the
// quantizer (scales and zero points) is small, and stays on the host.
//
// Operators on them run on the host, as those on sparse tensors do (composed_kernels.h), and give the CPU's
// bits. Operators that only make, show or copy them are LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

namespace innkeeper::torch_layer {

// Gives `target` the view and the quantizer of `shown`. Requires: both have one storage.
void show_quantized(const at::Tensor& target, const at::Tensor& shown);

// Gives a fresh result its own scales and zero points, which it may share with the kernel's operands.
void own_quantizer(const at::Tensor& quantized);

}  // namespace innkeeper::torch_layer
