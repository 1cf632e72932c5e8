#include "torch/accelerator/kernel_work.h"

namespace innkeeper::torch_layer {

trace::Work& work_of_thread() {
  thread_local trace::Work work;
  return work;
}

void note_kernel(const cost::KernelCost& kernel) {
  trace::Work& work = work_of_thread();
  work.flops += kernel.flops;
  work.bytes += kernel.bytes;
  if (kernel.flops > 0) work.precision = kernel.precision;
  ++work.kernels;
}

}  // namespace innkeeper::torch_layer
