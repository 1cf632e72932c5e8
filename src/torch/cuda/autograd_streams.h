// Keeps the streams of plain CUDA tensors in the autograd engine.
//
// The engine asks at::getAccelerator() for the one device type whose streams it keeps. That is the
// out-of-tree device's type as soon as there is one. The backward pass of CUDA tensors then ends in an
// internal assertion, or is not ordered (pytorch/pytorch#161129). Managed tensors need no streams in the
// engine: their operators run in program order, whatever stream is current. So if CUDA is in use, the engine
// gets CUDA as the answer; all other callers get the answer that they got before.
#pragma once

namespace innkeeper::torch_layer::cuda_backend {

// Called once, when the device is registered. If PyTorch differs from the expected form, it logs this and
// changes nothing.
void keep_autograd_streams();

}  // namespace innkeeper::torch_layer::cuda_backend
