// The managed device and its verbs for C++ programs, as in Python.
//
// Linking registers the device. Bytes are plain int64_t; nodes go by their names ("sim:0", "host").
//
// Thread safety: all functions; the scopes below belong to the thread that made them.
// Errors: c10::Error for bad settings and arguments, c10::OutOfMemoryError for memory.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <utility>

#include "innkeeper/export.h"
#include "innkeeper/stats.h"
#include "innkeeper/torch/runtime.h"

namespace innkeeper {

using torch_layer::configure;
using torch_layer::growth;
using torch_layer::NodeInfo;
using torch_layer::nodes;
using torch_layer::planning;
using torch_layer::recompute;
using torch_layer::set_budget;
using torch_layer::set_growth;
using torch_layer::set_planning;
using torch_layer::set_recompute;
using torch_layer::set_soft_placement;
using torch_layer::soft_placement;

using torch_layer::reset_stats;
using torch_layer::stats;

using torch_layer::evict;
using torch_layer::pin;
using torch_layer::prefetch;
using torch_layer::unpin;
using torch_layer::where;

using torch_layer::empty_cache;
using torch_layer::find_device;
using torch_layer::manual_seed;
using torch_layer::synchronize;

// Returns the device that all managed tensors are on. Throws c10::Error if the library could not register it
// because another out-of-tree device has PyTorch's one slot.
IK_EXPORT c10::Device device();

// Tensors without operands are created at `node` while this object lives.
class On {
 public:
  explicit On(const std::string& node) : outer_(torch_layer::set_home(node)) {}
  ~On() { torch_layer::set_home(outer_); }
  On(const On&) = delete;
  On& operator=(const On&) = delete;

 private:
  const std::string outer_;
};

// One of several experiments: a preferred node and a random stream of its own for the calling thread.
class Experiment {
 public:
  // `memory`: bytes that it expects to need, so that experiments spread over the nodes by size.
  explicit Experiment(const std::string& name, std::optional<int64_t> memory = std::nullopt)
      : token_(torch_layer::enter_experiment(name, memory)) {}
  ~Experiment() { torch_layer::leave_experiment(token_); }
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

 private:
  const int64_t token_;
};

using torch_layer::Resident;

}  // namespace innkeeper
