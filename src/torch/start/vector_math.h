// Elementary functions of the host (sqrt, exp, ...), whose work kernels of the host and of simulated GPUs
// divide among threads.
#pragma once

namespace innkeeper::torch_layer {

// Calls each function once on this thread. PyTorch computes them by MKL, which looks for a function's best
// code at its first call. If two threads make the first call at the same time, one may compute its whole part
// with coarse code. Its results are then thousands of last bits off (MKL 2024.2; PyTorch issue 188792). After
// this call no call is a first one.
void settle_vector_math();

}  // namespace innkeeper::torch_layer
