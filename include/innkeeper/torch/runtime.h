// The process's managed runtime: the configured nodes, the engine over them, and the operations of the public
// interface on tensors. Both Python's and C++'s public interfaces go through here.
//
// The runtime starts at the first use of the device, with INNKEEPER_NODES or the argument of an earlier
// configure(). It is never destroyed: tensors may outlive any order of destruction.
//
// Thread safety: all functions. Errors are thrown as c10::Error (ValueError for bad settings,
// torch.OutOfMemoryError for memory).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <optional>
#include <string>
#include <vector>

#include "innkeeper/export.h"
#include "innkeeper/stats.h"

namespace innkeeper::torch_layer {

// Sets the nodes: "sim:2x64MiB,host:1GiB". Fails, and leaves the machine as it is, if managed memory is
// alive, or memory of a node that is exposed to the program. No other thread may use the device meanwhile.
IK_EXPORT void configure(const std::string& nodes);

// Whether the host runs an operator that its node cannot run, being too large for it or without a
// kernel there (the default, or INNKEEPER_SOFT_PLACEMENT). A warning names each such operator once. If
// off, the operator fails.
IK_EXPORT bool soft_placement();
IK_EXPORT void set_soft_placement(bool soft);

// Whether the GPUs' memory is allocated on demand (the default, or INNKEEPER_GROWTH), or each GPU's
// whole budget at once, so that no other process gets it. It takes effect when the runtime starts,
// or at configure().
IK_EXPORT bool growth();
IK_EXPORT void set_growth(bool growth);

// Whether movement is planned if a program repeats itself and does not fit (the default, or
// INNKEEPER_PLANNING); if off, blocks move on demand.
IK_EXPORT bool planning();
IK_EXPORT void set_planning(bool planning);
// Whether a plan may discard blocks and recompute them instead of copying them out and back.
IK_EXPORT bool recompute();
IK_EXPORT void set_recompute(bool recompute);

// Makes CUDA_VISIBLE_DEVICES also select among simulated nodes, as CUDA selects among GPUs. Its value when
// the runtime starts, or at configure(), counts. For programs that take simulated nodes for GPUs.
IK_EXPORT void follow_visible_devices();

// Registers the device if that is not done yet (loading the library does it too), and starts the runtime.
IK_EXPORT void start();
IK_EXPORT bool started();
// Returns whether this is a child that was forked after the runtime had started: it has no managed device.
IK_EXPORT bool is_bad_fork();

struct NodeInfo {
  std::string name;  // Name such as "sim:0", "cuda:1", "host" or "disk".
  std::string kind;  // Kind of accelerator ("sim", "cuda"), "host" or "disk".
  int64_t budget;
  int64_t capacity;
  bool computes;      // True: operators may run here.
  bool host_kernels;  // True: operators that run here run PyTorch's CPU kernels.
};
IK_EXPORT std::vector<NodeInfo> nodes();
// Returns text such as "sim:0: 48.0 MiB of 64.0 MiB, computes".
IK_EXPORT std::string describe(const NodeInfo& node);
IK_EXPORT void set_budget(const std::string& node, int64_t bytes);

IK_EXPORT Stats stats();
// Returns the moves of each block in the period that stats() reports, in no order; empty if it reports none.
IK_EXPORT std::vector<BlockMoves> planned_moves();
IK_EXPORT uint64_t block_number(const at::Tensor& x);  // The number in BlockMoves.
IK_EXPORT void reset_stats();
// Returns a description of the first violated invariant; empty: all hold. Stops the world during the check.
IK_EXPORT std::string check_invariants();

// Returns the names of the nodes where the tensor's block has a valid replica, the owner first; empty if it
// was never written.
IK_EXPORT std::vector<std::string> where(const at::Tensor& x);
// Moves the block to `node` (default: its present node, or the thread's preferred node) and keeps it there
// until it is unpinned as often.
IK_EXPORT void pin(const at::Tensor& x, const std::optional<std::string>& node);
IK_EXPORT void unpin(const at::Tensor& x);
IK_EXPORT bool is_user_pinned(const at::Tensor& x);
IK_EXPORT void prefetch(const at::Tensor& x, const std::string& node);  // Returns before the copy is done.
// Marks a tensor as replicated: read at several nodes at the same time. Operators then run where their
// other operands are.
IK_EXPORT void set_replicated(const at::Tensor& x, bool replicated);
IK_EXPORT void evict(const at::Tensor& x);  // Moves it from every accelerator to the host. Pinned: an error.
// The real tensor over a managed tensor's bytes, for a kernel of the program's own. It is at `node` (by
// default the present node), pinned there until leave(), even if the managed tensor dies. With `write` the
// bytes count as written.
class IK_EXPORT Resident {
 public:
  explicit Resident(const at::Tensor& managed, const std::optional<std::string>& node = std::nullopt,
                    bool write = false);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  // Unpins the bytes. A second call has no effect.
  void leave();
  const at::Tensor& operator*() const { return real_; }
  const at::Tensor* operator->() const { return &real_; }
  const std::string& node() const { return node_; }

 private:
  const c10::Storage handle_;  // Keeps the bytes alive.
  std::string node_;
  at::Tensor real_;
  bool held_ = false;
  const bool write_;
};

// Blocks until every queue of every node has done its work.
IK_EXPORT void synchronize();
// Frees cached memory; returns the number of bytes.
IK_EXPORT int64_t empty_cache();

// The node that the calling thread prefers for tensors created without operands. It is assigned at the
// first use: the least loaded node that computes. set_home returns the previous one; "": none yet, or
// assign at the next use.
IK_EXPORT std::string home();
// Returns the process's LOCAL_RANK, as torchrun sets it; -1 if it has none, or no number.
IK_EXPORT int local_rank();
IK_EXPORT std::string set_home(const std::string& node);
// Returns the node that best fits `nbytes` more: the one with most free bytes. With `disperse` it spreads by
// the preferred nodes assigned before.
IK_EXPORT std::string find_device(int64_t nbytes, bool disperse);

// Experiments: a preferred node and a random stream of their own, for the calling thread (and its
// backward passes).
IK_EXPORT int64_t enter_experiment(const std::string& name, std::optional<int64_t> memory);
IK_EXPORT void leave_experiment(int64_t token);

// Switches log lines of placements and moves (INNKEEPER_LOG=info) on or off.
IK_EXPORT void log_moves(bool on);

// A record of accesses since trace_start: text, one line per operator (the format is in trace/recorder.h).
IK_EXPORT void trace_start();
IK_EXPORT void trace_mark(const std::string& text);
IK_EXPORT std::string trace_stop();

// Periodic samples of bytes per node, for plots: at most `capacity` rows of (operator ordinal, bytes per
// node). Throws c10::ValueError if every_ops is less than 1.
IK_EXPORT void sample_start(int64_t every_ops);
struct Samples {
  std::vector<std::string> nodes;
  std::vector<int64_t> op;                                 // Operator ordinal of each row.
  std::vector<std::vector<int64_t>> resident;              // Bytes, [row][node].
  std::vector<int64_t> bytes_fetched, bytes_written_back;  // Running totals, [row].
};
IK_EXPORT Samples sample_stop();

// The calling thread's random stream: its experiment's, else the process's.
IK_EXPORT void manual_seed(uint64_t seed);
IK_EXPORT uint64_t seed();  // Seeds the stream from the operating system; returns the seed.
IK_EXPORT uint64_t initial_seed();
IK_EXPORT at::Tensor get_rng_state();  // Returns a uint8 tensor on the CPU.
IK_EXPORT void set_rng_state(const at::Tensor& state);

}  // namespace innkeeper::torch_layer
