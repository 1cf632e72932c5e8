// Managed tensors that are composed of dense ones: PyTorch's own SparseTensorImpl (COO), SparseCsrTensorImpl
// (CSR, CSC, BSR, BSC), NestedTensorImpl and QTensorImpl (quantized.h) on the managed device. Their parts
// (indices and values; the buffer of a nested or quantized tensor) are dense managed tensors. The parts are
// ordinary blocks: they are placed, evicted and counted; the composed tensor itself holds no memory.
//
// Operators on them run on the host. The host's kernels get CPU tensors built over the parts' real tensors,
// and the parts of a composed result become managed tensors. Operators that only make, copy or show parts are
// plain LibTorch.
#pragma once

#include "torch/operator/fallback.h"

namespace innkeeper::torch_layer {

// Runs an operator on the host, some of whose operands or results are composed. The stack is as for
// run_managed().
void run_composed(const ManagedOp& op, torch::jit::Stack* stack);

// Registers the boxed function for operators on composed managed tensors, and for those that make them from
// dense ones. Requires: called once, before the dense operators are registered.
void register_composed_operators();

}  // namespace innkeeper::torch_layer
