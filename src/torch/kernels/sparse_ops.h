// Sparse managed tensors: PyTorch's own SparseTensorImpl (COO) and SparseCsrTensorImpl (CSR, CSC, BSR, BSC)
// on the managed device, whose parts (indices and values) are dense managed tensors. The parts are blocks
// like any other: they are placed, evicted and counted; the sparse tensor itself holds no memory.
//
// Operators on them run on the host: its kernels are lent sparse CPU tensors built over the parts' real
// tensors, and a sparse result's parts become managed tensors. What only makes, copies or shows parts is
// plain LibTorch.
#pragma once

namespace innkeeper::torch_layer {

// Registers the boxed function for operators on sparse managed tensors, and for those that make sparse
// tensors of dense ones. Once, before the dense operators.
void register_sparse_operators();

}  // namespace innkeeper::torch_layer
