// An operator of a GPU, by the host's kernel: the shapes at once, the numbers when its stream gets there.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/plain_call.h"

namespace fake_cuda {

// A boxed kernel. Where the shapes depend on the numbers it waits for the stream, like CUDA's own kernel.
void run_on_gpu(const c10::OperatorHandle& op, Stack* stack);

}  // namespace fake_cuda
