#include "torch/operator/cpu_gradient.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace innkeeper::torch_layer {
namespace {

using torch::autograd::FunctionPostHook;
using torch::autograd::FunctionPreHook;
using torch::autograd::InputMetadata;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Moves one gradient to the device of its tensor. The device never changes, because PyTorch gives a tensor
// whose data move to another device another node. The hook is one of the node's own hooks, because PyTorch
// removes a tensor's hooks when the program adds one to it.
class ToOwnDevice final : public FunctionPreHook {
 public:
  ToOwnDevice(uint32_t input, c10::Device device) : input_(input), device_(device) {}
  variable_list operator()(const variable_list& gradients) override {
    variable_list moved = gradients;
    if (input_ < moved.size()) move(moved[input_]);
    return moved;
  }
  void move(at::Tensor& gradient) const {
    if (gradient.defined() && gradient.device() != device_) gradient = gradient.to(device_);
  }
  uint32_t input() const { return input_; }

 private:
  const uint32_t input_;
  const c10::Device device_;
};

// The hook that moves the gradient of the node's input; null if all its gradients come from one device.
const ToOwnDevice* mover_of(Node& node, uint32_t input) {
  for (const auto& hook : node.pre_hooks()) {
    const auto* mover = dynamic_cast<const ToOwnDevice*>(hook.get());
    if (mover != nullptr && mover->input() == input) return mover;
  }
  return nullptr;
}

// Moves the gradients that a node returns, before autograd adds them to others.
class MoveGradients final : public FunctionPostHook {
 public:
  explicit MoveGradients(Node& node) : node_(node) {}
  variable_list operator()(const variable_list& gradients, const variable_list&) override {
    variable_list moved = gradients;
    for (size_t i = 0; i < moved.size() && i < node_.num_outputs(); ++i) {
      const torch::autograd::Edge& edge = node_.next_edge(i);
      if (!edge.is_valid()) continue;
      if (const ToOwnDevice* mover = mover_of(*edge.function, edge.input_nr)) mover->move(moved[i]);
    }
    return moved;
  }

 private:
  Node& node_;  // The node that has the hook.
};

// Autograd accepts gradients of any device for inputs that are marked as tensor subclasses. For a managed
// gradient it asks the node for a stream, which only a node of the managed device has.
void take_any_device(Node& node, uint32_t input, c10::Device device) {
  InputMetadata& metadata = node.mutable_input_metadata(input);
  if (metadata.was_default_constructed() || metadata.is_tensor_subclass() || metadata.is_nested_tensor())
    return;
  const c10::SymIntArrayRef sizes = metadata.shape_as_dim_vector();
  const InputMetadata wider(metadata.options().device(device),
                            torch::autograd::SymIntSmallVec(sizes.begin(), sizes.end()),
                            /*is_tensor_subclass=*/true, /*is_nested=*/false, metadata.grad_dtype());
  std::destroy_at(&metadata);
  std::construct_at(&metadata, wider);
}

// Results of this thread whose nodes do not exist yet: autograd makes a node on the thread that runs the
// operator.
class RecentResults {
 public:
  ~RecentResults() { take(); }
  void add(c10::weak_intrusive_ptr<c10::TensorImpl> result) {
    all_.push_back(std::move(result));
    detail::results_to_look_at.fetch_add(1, std::memory_order_relaxed);
  }
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> take() {
    detail::results_to_look_at.fetch_sub(static_cast<int>(all_.size()), std::memory_order_relaxed);
    return std::exchange(all_, {});
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> all_;
};

thread_local RecentResults recent_results;

}  // namespace

bool expect_gradient_from(const at::Tensor& tensor, c10::Device other) {
  if (!c10::GradMode::is_enabled() || !tensor.requires_grad()) return false;
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
  if (!edge.is_valid()) return false;
  Node& node = *edge.function;
  take_any_device(node, edge.input_nr, other.is_cpu() ? tensor.device() : other);
  if (mover_of(node, edge.input_nr) == nullptr) {
    node.add_pre_hook(std::make_unique<ToOwnDevice>(edge.input_nr, tensor.device()));
  }
  return true;
}

void move_gradients_of(const at::Tensor& result) {
  recent_results.add(c10::weak_intrusive_ptr<c10::TensorImpl>(result.getIntrusivePtr()));
}

void detail::look_at_results() {
  for (const auto& weak : recent_results.take()) {
    auto impl = weak.lock();
    if (!impl) continue;
    const at::Tensor result(std::move(impl));
    const auto node = result.grad_fn();
    if (node == nullptr) continue;
    const auto& hooks = node->post_hooks();
    const bool has_one = std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
      return dynamic_cast<const MoveGradients*>(hook.get()) != nullptr;
    });
    if (!has_one) node->add_post_hook(std::make_unique<MoveGradients>(*node));
  }
}

}  // namespace innkeeper::torch_layer
