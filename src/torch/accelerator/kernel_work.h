// Work of accelerators' kernels for the access stream's records. A backend whose kernels have known costs
// notes each of them; operators of other backends are recorded without work.
//
// Thread safety: each thread has its own work.
#pragma once

#include "cost/gpu_model.h"
#include "trace/event.h"

namespace innkeeper::torch_layer {

// Work of the calling thread's kernels since the last record took it.
trace::Work& work_of_thread();
void note_kernel(const cost::KernelCost& kernel);

}  // namespace innkeeper::torch_layer
