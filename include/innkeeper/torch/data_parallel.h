// Data parallelism over the computing nodes of one process, as Python's innkeeper.DataParallel. The function
// replaces torch::nn::parallel::data_parallel, which uses only CUDA's devices.
//
//   at::Tensor out = innkeeper::data_parallel(net, batch);           // over all nodes that compute
//   out = innkeeper::data_parallel(net, batch, {"sim:1", "sim:0"});  // over these
//
// A replica computes each part of the batch at a node of its own, in a thread of its own; the first one runs
// in the caller's thread. docs/parallel.md states the rules for parameters, gradients, buffers and random
// numbers. Results have the bits of Python's, except for random values.
//
// The module is a torch::nn::Cloneable, as PyTorch's data_parallel requires. Each call makes a replica by
// clone(), which costs as much as a new module and a copy of its tensors. The copy is dropped at once, since
// the replicas share the module's memory; and the CPU's generator keeps its state.
//
// Thread safety: as the module's forward. Errors: c10::Error for nodes and modules. If replicas throw, the
// first exception in their order is rethrown when all have ended.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "innkeeper/torch/managed.h"

namespace innkeeper {
namespace parallel_parts {

// Returns the requested nodes; by default all that compute.
inline std::vector<std::string> checked(std::vector<std::string> asked) {
  std::vector<std::string> names;
  for (const NodeInfo& node : nodes())
    if (node.computes) names.push_back(node.name);
  if (asked.empty()) return names;
  for (auto name = asked.begin(); name != asked.end(); ++name) {
    TORCH_CHECK(std::count(names.begin(), names.end(), *name) == 1, "data_parallel: \"", *name,
                "\" is none of the nodes that compute: ", c10::Join(", ", names));
    TORCH_CHECK(std::count(asked.begin(), name, *name) == 0, "data_parallel: ", *name, " is named twice");
  }
  return asked;
}

// Starts the copy to the node. If the node lacks free space now, the copy is made with its operator.
inline at::Tensor started(const at::Tensor& tensor, const std::string& node) {
  try {
    prefetch(tensor, node);
  } catch (const c10::OutOfMemoryError&) {
  }
  return tensor;
}

// Gives the part memory of its own: a view would take its whole base along.
inline at::Tensor part_at(const std::string& node, const at::Tensor& part) {
  if (part.device() == device()) return started(part.clone(at::MemoryFormat::Contiguous), node);
  const On on(node);
  return part.to(device());
}

// A parameter for each replica; its gradient is their sum, in the replicas' order.
struct Share : torch::autograd::Function<Share> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& parameter, int64_t count) {
    context->set_materialize_grads(false);
    torch::autograd::variable_list shares;
    for (int64_t i = 0; i < count; ++i) shares.push_back(parameter.view_as(parameter));
    return shares;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    at::Tensor total;
    for (const at::Tensor& gradient : gradients)
      if (gradient.defined()) total = total.defined() ? total + gradient : gradient;
    return {total, at::Tensor()};
  }
};

// An output that is concatenated with others; its part of their gradient goes to the node that computed it.
struct Return : torch::autograd::Function<Return> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            const std::string& node) {
    context->saved_data["node"] = node;
    return output.view_as(output);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {part_at(context->saved_data["node"].toStringRef(), gradients[0]), at::Tensor()};
  }
};

// The originals of the replicas' tensors: their memory, and the destination of their gradients.
class Originals {
 public:
  Originals(std::vector<at::Tensor> tensors, size_t count) : tensors_(std::move(tensors)) {
    for (const at::Tensor& tensor : tensors_) {
      const bool shared = tensor.requires_grad() && at::GradMode::is_enabled();
      shares_.push_back(shared ? Share::apply(tensor, static_cast<int64_t>(count))
                               : torch::autograd::variable_list());
    }
  }
  // Makes the tensors of a replica share the originals' memory; with `copied` those without
  // gradients are copies.
  void lend(std::vector<at::Tensor> replicas, size_t number, bool copied) const {
    TORCH_CHECK(replicas.size() == tensors_.size(), "data_parallel: clone() made a module of ",
                replicas.size(), " parameters or buffers in place of ", tensors_.size());
    for (size_t i = 0; i < replicas.size(); ++i) {
      const at::Tensor plain = tensors_[i].detach();
      replicas[i].requires_grad_(tensors_[i].requires_grad());
      replicas[i].set_data(copied && shares_[i].empty() ? plain.clone() : plain);
      if (shares_[i].empty()) continue;
      using namespace torch::autograd::impl;
      set_gradient_edge(replicas[i], gradient_edge(shares_[i][number]));
    }
  }

 private:
  const std::vector<at::Tensor> tensors_;
  std::vector<torch::autograd::variable_list> shares_;  // By tensor: one share for each replica, or none.
};

// Restores the state of the CPU's generator at the end.
class KeptGenerator {
 public:
  KeptGenerator() : state_(generator_.get_state()) {}
  ~KeptGenerator() { generator_.set_state(state_); }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  const at::Tensor state_;
};

template <typename Module>
std::vector<std::shared_ptr<Module>> replicate(const std::shared_ptr<Module>& module, size_t count) {
  const Originals parameters(module->parameters(), count), buffers(module->buffers(), count);
  const KeptGenerator kept;
  const c10::InferenceMode apart(
      false);  // Inference tensors could not share memory with a module made before.
  const at::NoGradGuard no_grad;
  std::vector<std::shared_ptr<Module>> replicas;
  for (size_t i = 0; i < count; ++i) {
    replicas.push_back(std::dynamic_pointer_cast<Module>(module->clone()));
    parameters.lend(replicas[i]->parameters(), i, /*copied=*/false);
    buffers.lend(replicas[i]->buffers(), i, /*copied=*/i > 0);
  }
  return replicas;
}

// Returns the seed of a replica's random stream, which the caller's stream and the replica's
// number determine.
inline uint64_t seed_of(size_t replica) {
  const at::Tensor state = torch_layer::get_rng_state();
  const auto* bytes = state.const_data_ptr<uint8_t>();
  uint64_t hash = 0xcbf29ce484222325 ^ replica;
  for (int64_t i = 0; i < state.numel(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

}  // namespace parallel_parts

// Computes module->forward(input) on parts of the batch at `nodes`, and concatenates the results at
// `output_node` (by default the first node). `input` may be on the CPU; `dim` is the dimension of batches.
template <typename Module>
at::Tensor data_parallel(const std::shared_ptr<Module>& module, const at::Tensor& input,
                         std::vector<std::string> nodes = {},
                         const std::optional<std::string>& output_node = std::nullopt, int64_t dim = 0) {
  using namespace parallel_parts;
  nodes = checked(std::move(nodes));
  const std::string last = output_node ? checked({*output_node}).front() : nodes.front();
  const auto look_at = [](const auto& named) {
    for (const auto& item : named) {
      TORCH_CHECK(item.value().device() == device(), "data_parallel: the module's \"", item.key(),
                  "\" is on ", item.value().device(),
                  "; it must be on the managed device: module->to(innkeeper::device())");
      torch_layer::set_replicated(item.value(), true);  // Operators on it run where their activations are.
    }
  };
  look_at(module->named_parameters());
  look_at(module->named_buffers());

  std::vector<at::Tensor> parts = input.chunk(static_cast<int64_t>(nodes.size()), dim);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = part_at(nodes[i], parts[i]);
  if (parts.size() == 1) {
    const On on(nodes[0]);
    return module->forward(parts[0]);
  }
  const auto replicas = replicate(module, parts.size());
  std::vector<at::Tensor> outputs(parts.size());
  std::vector<std::exception_ptr> errors(parts.size());
  const auto run = [&](size_t i) {
    const On on(nodes[i]);
    const at::Tensor output = replicas[i]->forward(parts[i]);
    outputs[i] = Return::apply(output.dim() == 0 ? output.view(1) : output, nodes[i]);
  };
  const at::ThreadLocalState modes;  // Modes of gradients, autocast and inference.
  const auto run_apart = [&](size_t i, uint64_t seed) {
    const at::ThreadLocalStateGuard as_the_caller(modes);
    // Otherwise the thread would inherit the preferred node and the random stream.
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
    const Experiment own("replica " + std::to_string(i));
    manual_seed(seed);
    run(i);
  };
  const auto keeping_its_error = [&errors](size_t i, const auto& work) {
    try {
      work();
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;  // Joined at the end of the block.
    for (size_t i = 1; i < parts.size(); ++i)
      threads.emplace_back([&, i, seed = seed_of(i)] { keeping_its_error(i, [&] { run_apart(i, seed); }); });
    keeping_its_error(0, [&] { run(0); });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (const at::Tensor& output : outputs) started(output, last);
  const On on(last);
  return at::cat(outputs, dim);
}

template <typename Contained>
at::Tensor data_parallel(const torch::nn::ModuleHolder<Contained>& module, const at::Tensor& input,
                         std::vector<std::string> nodes = {},
                         const std::optional<std::string>& output_node = std::nullopt, int64_t dim = 0) {
  return data_parallel(module.ptr(), input, std::move(nodes), output_node, dim);
}

}  // namespace innkeeper
