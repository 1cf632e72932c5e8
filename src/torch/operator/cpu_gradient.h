// Gradients between CPU tensors and managed ones that one operator takes (mixed_move.h).
//
// Autograd records the operands above the kernels that move them. A backward formula gives the gradient of a
// CPU operand on the device, or the other way round, which autograd refuses. So the nodes that take the
// gradients are told to take those of another device, and to move them before anyone sees them. And the node
// of the operator moves its gradients itself, as soon as it is known: it is made when the kernel has
// returned, so the next operator looks for it.
//
// Thread safety: all functions; as autograd asks, one tensor's graph is not made by two threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>

namespace innkeeper::torch_layer {

// Lets the tensor's gradient come from `other`, and moves it to the tensor's own device. Does nothing for a
// tensor that requires none, or while gradients are off. Returns whether there is a gradient to expect.
bool expect_gradient_from(const at::Tensor& tensor, c10::Device other);

// The operator that returns this tensor has operands whose gradients are to be moved.
void move_gradients_of(const at::Tensor& result);

namespace detail {
inline std::atomic<int> results_to_look_at{0};
void look_at_results();
}  // namespace detail

// Finds the nodes of the results so far. Costs one load where there are none.
inline void find_nodes_of_results() {
  if (detail::results_to_look_at.load(std::memory_order_relaxed) != 0) [[unlikely]]
    detail::look_at_results();
}

}  // namespace innkeeper::torch_layer
