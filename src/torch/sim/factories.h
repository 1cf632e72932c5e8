// Hand-written kernels of simulated accelerators: factories, views, and operators on storages and metadata.
#pragma once

#include <torch/library.h>

namespace innkeeper::torch_layer::sim_backend {

// Requires: `library` implements aten for DispatchKey::HPU.
void register_factories(torch::Library& library);

}  // namespace innkeeper::torch_layer::sim_backend
