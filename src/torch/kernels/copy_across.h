// Copies between managed tensors of different device indices, such as cuda:0 and cuda:1.
//
// Such a copy reads its source on the source's node, as CUDA does, and leaves no replica of the source on the
// target's node. It never waits for memory on one node while it pins a block on another: two threads that
// copy in opposite directions would wait for each other.
#pragma once

#include <ATen/core/Tensor.h>

namespace innkeeper::torch_layer {

// Returns false, and does nothing, in three cases: both tensors have one index, the target's node can read
// the source's bytes without a move, or no node can read them at once. Then the caller uses an operator's
// copy, which fetches operands.
bool copy_across(const at::Tensor& source, const at::Tensor& target, bool non_blocking);

// Whether one copy of memory makes the tensors equal.
bool has_equal_layout(const at::Tensor& a, const at::Tensor& b);

}  // namespace innkeeper::torch_layer
