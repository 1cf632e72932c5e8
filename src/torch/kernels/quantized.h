// Quantized managed tensors: PyTorch's own QTensorImpl over a handle. The block holds the integers; the
// quantizer (scales and zero points) is the process's, on the host, as small as it is.
//
// Operators on them run on the host, as those on sparse tensors do (composed_kernels.h), and to the CPU's
// bits. What only makes, shows or copies them is LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

namespace innkeeper::torch_layer {

// Has `target` show what `shown` does of the same storage, quantized as that is.
void show_quantized(const at::Tensor& target, const at::Tensor& shown);

// Gives a fresh result scales and zero points of its own, which it may share with the kernel's operands.
void own_quantizer(const at::Tensor& quantized);

}  // namespace innkeeper::torch_layer
