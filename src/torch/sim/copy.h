// Copies between simulated accelerators and host memory.
#pragma once

#include <torch/library.h>

namespace innkeeper::torch_layer::sim_backend {

// copy_, _copy_from and _copy_from_and_resize of aten, for DispatchKey::HPU.
//
// Tensors of one dtype and one dense layout are copied as bytes, on the current stream of the accelerator.
// From and to host memory the host waits, unless non_blocking: then the caller keeps both ends alive until
// the stream is there. Between accelerators as on GPUs: on the source's current stream, and the destination's
// waits for it. Anything else (a conversion, a broadcast, strides) runs as a kernel on the accelerator, with
// one end staged if that is in host memory; then the host waits.
void register_copies(torch::Library& library);

}  // namespace innkeeper::torch_layer::sim_backend
