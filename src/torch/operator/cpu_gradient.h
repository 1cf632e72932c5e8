// Gradients between the CPU operands and the managed operands of one operator (mixed_move.h).
//
// Autograd records the operands above the kernels that move them. A backward formula gives the gradient of a
// CPU operand on the managed device, or the reverse, and autograd refuses such a gradient. So
// expect_gradient_from() makes the operands' nodes accept gradients of the other device, and hooks of these
// nodes move each gradient before any other code sees it. The operator's own node moves its gradients itself.
// Autograd makes that node after the kernel has returned, so the thread's next operator adds the hook to it.
//
// Thread safety: all functions. As autograd requires, no two threads build the graph of one tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>

namespace innkeeper::torch_layer {

// Lets the tensor's gradient come from `other`, and moves it to the tensor's own device. Does nothing if the
// tensor requires no gradient, or while gradients are off. Returns whether there is a gradient to expect.
bool expect_gradient_from(const at::Tensor& tensor, c10::Device other);

// States that the operator that returns this tensor has operands whose gradients must be moved.
void move_gradients_of(const at::Tensor& result);

namespace detail {
inline std::atomic<int> results_to_look_at{0};
void look_at_results();
}  // namespace detail

// Adds the hooks to the nodes of the thread's results so far. Costs one load if there are none.
inline void find_nodes_of_results() {
  if (detail::results_to_look_at.load(std::memory_order_relaxed) != 0) [[unlikely]]
    detail::look_at_results();
}

}  // namespace innkeeper::torch_layer
