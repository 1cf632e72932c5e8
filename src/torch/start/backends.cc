#include "torch/start/backends.h"

#include "torch/accelerator/backend.h"
#include "torch/sim/sim_backend.h"
#ifdef INNKEEPER_WITH_CUDA
#include "torch/cuda/cuda_backend.h"
#endif

namespace innkeeper::torch_layer {

void add_backends() {
  if (!backends().empty()) return;
  add_backend(sim_backend::backend());
#ifdef INNKEEPER_WITH_CUDA
  add_backend(cuda_backend::backend());
#endif
}

}  // namespace innkeeper::torch_layer
