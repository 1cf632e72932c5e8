// Plain CUDA tensors keep their streams in the autograd engine.
//
// The engine asks at::getAccelerator() for the one device type whose streams it keeps, and that is the
// out-of-tree device's as soon as there is one. The backward pass of CUDA tensors then ends in an internal
// assertion, or is not ordered (pytorch/pytorch#161129). Managed tensors need none of it: their work is in
// order by itself, whatever stream is current. So where CUDA is in use, the engine is told that the
// accelerator is CUDA; all others hear what they heard before.
#pragma once

namespace innkeeper::torch_layer::cuda_backend {

// Once, when the device is registered. Where PyTorch is not as this expects, it says so in the log and leaves
// all as it is.
void keep_autograd_streams();

}  // namespace innkeeper::torch_layer::cuda_backend
