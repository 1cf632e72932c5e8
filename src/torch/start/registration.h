// Registers the managed device's kernels with the dispatcher.
#pragma once

namespace innkeeper::torch_layer {

// Called once, when the library is loaded.
void register_operators();

}  // namespace innkeeper::torch_layer
