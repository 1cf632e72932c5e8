// The one runtime of the process, for the torch layer's own files (the public face is runtime.h).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/repeat.h"
#include "board/publisher.h"
#include "residency/engine.h"
#include "residency/movement/pinned_copies.h"
#include "torch/process/kernel_clock.h"

namespace innkeeper::torch_layer {

class Backend;

// How operators reach a node's memory through PyTorch.
struct NodeBackend {
  c10::Device device = c10::Device(c10::kCPU);  // of the real tensors there
  c10::DispatchKey key = c10::DispatchKey::CPU;
  c10::DispatchKey kernel_key = c10::DispatchKey::CPU;  // whose kernels compute there
  bool host = true;                                     // computes with CPU kernels over host memory
  std::string kind;                                     // "sim", "cuda", "host", "disk"
  Bytes capacity{0};
  Backend* accelerator = nullptr;                       // null: the host or a disk
  std::shared_ptr<KernelClock> kernel_clock = nullptr;  // null: reports its times, or has none
};

class Runtime {
 public:
  Engine& engine() { return *engine_; }
  PinnedCopies& pinned_copies() { return pinned_copies_; }
  const NodeBackend& backend(NodeId node) const { return backends_[index_of(node)]; }
  // The node whose real tensors are on `device`, kNoNode if there is none.
  NodeId node_of(c10::Device device) const;
  // INNKEEPER_STRESS: `evict` evicts every unpinned block after each operator, `hash` hashes what operators
  // only read, `recompute` drops all that can be computed again, so that it is recomputed at its next read.
  bool stress_evict() const { return stress_evict_; }
  bool stress_hash() const { return stress_hash_; }
  bool stress_recompute() const { return stress_recompute_; }
  // Whether an operator must have given the same bits twice before what it makes is recomputed. Not under
  // stress, which is to show bits that differ, and not where there are no bits.
  bool tries_operators() const { return has_data_ && !stress_recompute_; }
  // Without, nodes hold addresses alone: kernels on accelerators compute shapes, the host computes nothing.
  bool has_data() const { return has_data_; }
  // Has the node's GPU measured (probe.h), once. Operators and plans have its rates from then on.
  void measure(NodeId node);
  std::vector<std::pair<std::string, std::string>> measure_all();  // measure_gpus() of measure.h
  // Ends the threads of the machine's own.
  void stop_background() {
    publisher_.reset();
    tidier_.reset();
    engine_->mover().thread().stop();
  }

 private:
  friend Runtime& runtime();
  friend void configure(const std::string&);
  struct Prepared;
  static Prepared prepare(const std::string& nodes);
  explicit Runtime(Prepared prepared);
  cost::Measured probe_of(NodeId node, bool products);
  std::unique_ptr<Engine> engine_;
  PinnedCopies pinned_copies_;
  std::vector<NodeBackend> backends_;
  bool stress_evict_ = false;
  bool stress_hash_ = false;
  bool stress_recompute_ = false;
  bool has_data_ = true;
  // The last: they look at the engine until they are gone.
  std::unique_ptr<Repeat> tidier_;  // of the host's memory
  std::unique_ptr<board::Publisher> publisher_;
};

// Starts the runtime if it has not started. Never destroyed.
Runtime& runtime();
// Null until it has started.
Runtime* runtime_if_started();

// The runtime, which configure() does not replace while this lives: for those who look at it, or change it,
// from threads that have no managed tensors. Tensors keep their machine by themselves.
class KeptRuntime {
 public:
  KeptRuntime();
  Runtime* operator->() const { return running_; }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  Runtime* running_;
};

// The node of that name. Throws an error of `what` that names those that are there, if it is not.
NodeId node_named(const std::string& name, const char* what);

// The calling thread's home (home.cc): where operators without operands run. Assigned at the first use.
NodeId home_node();

}  // namespace innkeeper::torch_layer
