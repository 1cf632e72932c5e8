// Collectives on sparse managed tensors: all_reduce, as on the CPU; all others throw an error.
#pragma once

namespace innkeeper::torch_layer {

// Requires: called before the fallback for sparse managed tensors is registered. That fallback exposes its
// operands only during a call, and a collective goes on after it.
void register_sparse_collectives();

}  // namespace innkeeper::torch_layer
