// The process's only runtime, for the torch layer's own files (the public interface is runtime.h).
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

// How the kernels of PyTorch reach a node's memory.
struct NodeBackend {
  c10::Device device = c10::Device(c10::kCPU);  // Device of the node's real tensors.
  c10::DispatchKey key = c10::DispatchKey::CPU;
  c10::DispatchKey kernel_key = c10::DispatchKey::CPU;  // Key of the kernels that compute there.
  bool host = true;                                     // Computes with CPU kernels on host memory.
  std::string kind;                                     // Backend::kind(), "host" or "disk".
  Bytes capacity{0};
  Backend* accelerator = nullptr;                       // Null for the host and disks.
  std::shared_ptr<KernelClock> kernel_clock = nullptr;  // Null if the node reports kernel times or has none.
};

class Runtime {
 public:
  Engine& engine() { return *engine_; }
  PinnedCopies& pinned_copies() { return pinned_copies_; }
  const NodeBackend& backend(NodeId node) const { return backends_[index_of(node)]; }
  // The node whose real tensors are on `device`; kNoNode if there is none.
  NodeId node_of(c10::Device device) const;
  // INNKEEPER_STRESS. `evict` evicts every unpinned block after each operator. `hash` hashes the operands
  // that an operator only reads. `recompute` discards every recomputable block, so that its next read
  // recomputes it.
  bool stress_evict() const { return stress_evict_; }
  bool stress_hash() const { return stress_hash_; }
  bool stress_recompute() const { return stress_recompute_; }
  // Whether the engine recomputes an operator's results only after the operator has given the same bits
  // twice. Not under stress, which must reveal bits that differ, and not if the machine holds no data.
  bool tries_operators() const { return has_data_ && !stress_recompute_; }
  // Whether nodes hold data. If not, they hold only addresses: kernels on accelerators compute shapes, and
  // the host computes nothing.
  bool has_data() const { return has_data_; }
  // Measures the node's GPU (probe.h), once. Operators and plans use the measured rates from then on.
  void measure(NodeId node);
  std::vector<std::pair<std::string, std::string>> measure_all();  // For measure_gpus() of measure.h.
  // Ends the machine's own threads.
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
  // Destroyed first: their threads use the engine.
  std::unique_ptr<Repeat> tidier_;  // Tidies the host's memory.
  std::unique_ptr<board::Publisher> publisher_;
};

// Starts the runtime if it has not started. Never destroyed.
Runtime& runtime();
// Null before the start.
Runtime* runtime_if_started();

// The runtime, which configure() does not replace while this lives. For functions that inspect or change it
// from threads without managed tensors; a tensor keeps its machine alive by itself.
class KeptRuntime {
 public:
  KeptRuntime();
  Runtime* operator->() const { return running_; }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  Runtime* running_;
};

// The node of that name. If there is none, throws an error of `what` that names the existing nodes.
NodeId node_named(const std::string& name, const char* what);

// The calling thread's preferred node (home.cc), which runs operators without operands. Assigned at the first
// use.
NodeId home_node();

}  // namespace innkeeper::torch_layer
