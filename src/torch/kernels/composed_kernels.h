// Managed tensors that are made of dense ones: PyTorch's own SparseTensorImpl (COO), SparseCsrTensorImpl
// (CSR, CSC, BSR, BSC), NestedTensorImpl and QTensorImpl (quantized.h) on the managed device, whose parts
// (indices and values; a nested or quantized one's buffer) are dense managed tensors. The parts are blocks
// like any other: they are placed, evicted and counted; the composed tensor itself holds no memory.
//
// Operators on them run on the host: its kernels are lent CPU tensors built over the parts' real tensors,
// and the parts of such a result become managed tensors. What only makes, copies or shows parts is plain
// LibTorch.
#pragma once

#include "torch/operator/fallback.h"

namespace innkeeper::torch_layer {

// An operator on the host, some of whose operands or results are composed. As run_managed().
void run_composed(const ManagedOp& op, torch::jit::Stack* stack);

// Registers the boxed function for operators on composed managed tensors, and for those that make them of
// dense ones. Once, before the dense operators.
void register_composed_operators();

}  // namespace innkeeper::torch_layer
