// Copies between managed tensors of different device indices, such as cuda:0 and cuda:1.
//
// Such a copy reads its source on the node where it is, as CUDA does, and leaves no replica of the source on
// the target's node. It never waits for memory on one node while it pins a block on another: two threads that
// copy in opposite directions would wait for each other.
#pragma once

#include <ATen/core/Tensor.h>

namespace innkeeper::torch_layer {

// Returns false, and does nothing, if the tensors are of one index, or the source's bytes can be read at the
// target's node without a move, or nowhere at once. Then an operator's copy does it, which fetches operands.
bool copy_across(const at::Tensor& source, const at::Tensor& target, bool non_blocking);

// Whether one copy of memory makes the tensors equal.
bool has_equal_layout(const at::Tensor& a, const at::Tensor& b);

}  // namespace innkeeper::torch_layer
