// Copies between simulated accelerators and host memory.
#pragma once

#include <torch/library.h>

namespace innkeeper::torch_layer::sim_backend {

// Implementations of aten's copy_, _copy_from and _copy_from_and_resize for DispatchKey::HPU.
//
// Tensors of one dtype and one dense layout are copied as bytes, on the current stream of the accelerator.
// For copies from and to host memory the host waits. With non_blocking it does not, and the caller keeps both
// ends alive until the stream has done the copy. Copies between accelerators work as on GPUs: on the source's
// current stream, and the destination's stream waits for it. Any other copy (a conversion, a broadcast,
// strides) runs as a kernel on the accelerator. If one end is in host memory, it is staged, and the host
// waits.
void register_copies(torch::Library& library);

}  // namespace innkeeper::torch_layer::sim_backend
