// Collectives on sparse managed tensors: all_reduce, as on the CPU; any other is refused in a line.
#pragma once

namespace innkeeper::torch_layer {

// Before the fallback for sparse managed tensors sees them: that one lends its operands for a call, and a
// collective goes on after it.
void register_sparse_collectives();

}  // namespace innkeeper::torch_layer
