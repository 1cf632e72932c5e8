// The process's managed runtime: the configured nodes, the engine over them, and the verbs of the public
// interface on tensors. Everything that Python's and C++'s public faces do goes through here.
//
// The runtime starts at the first use of the device, with INNKEEPER_NODES or what configure() said before. It
// is never destroyed: tensors may outlive any order of destruction.
//
// Thread safety: all functions. Errors are thrown as c10::Error (ValueError for bad settings,
// torch.OutOfMemoryError for memory), because this is the edge.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <optional>
#include <string>
#include <vector>

#include "innkeeper/export.h"
#include "innkeeper/stats.h"

namespace innkeeper::torch_layer {

// Sets the nodes: "sim:2x64MiB,host:1GiB". Fails, and leaves the machine as it is, if any managed memory is
// alive, or memory of a node that was lent out. Not beside a thread that uses the device.
IK_EXPORT void configure(const std::string& nodes);

// Whether the host runs an operator that its node cannot, being too large for it or without a kernel there,
// with a warning that names it, once (the default, or INNKEEPER_SOFT_PLACEMENT); else it fails.
IK_EXPORT bool soft_placement();
IK_EXPORT void set_soft_placement(bool soft);

// Whether the cards' memory is taken as it is needed (the default, or INNKEEPER_GROWTH), or each card's whole
// budget at once, so that no other process gets it. It counts when the runtime starts, or at configure().
IK_EXPORT bool growth();
IK_EXPORT void set_growth(bool growth);

// Whether movement is planned where a program repeats itself and does not fit (the default, or
// INNKEEPER_PLANNING); else blocks move on demand.
IK_EXPORT bool planning();
IK_EXPORT void set_planning(bool planning);
// Whether what is planned may be to drop blocks and compute them again, instead of a copy each way.
IK_EXPORT bool recompute();
IK_EXPORT void set_recompute(bool recompute);

// Makes CUDA_VISIBLE_DEVICES choose among simulated nodes too, as CUDA has it choose among cards: what it
// says when the runtime starts, or at configure(), counts. For programs that take them for cards.
IK_EXPORT void follow_visible_devices();

// Registers the device if this was not done yet (also done when the library is loaded), and starts the
// runtime.
IK_EXPORT void start();
IK_EXPORT bool started();
// Whether this is a child that was forked after the runtime had started: it has no managed device.
IK_EXPORT bool is_bad_fork();

struct NodeInfo {
  std::string name;  // "sim:0", "cuda:1", "host", "disk"
  std::string kind;  // "sim", "cuda", "host", "disk"
  int64_t budget;
  int64_t capacity;
  bool computes;  // operators may run here
};
IK_EXPORT std::vector<NodeInfo> nodes();
IK_EXPORT std::string describe(const NodeInfo& node);  // "sim:0: 48.0 MiB of 64.0 MiB, computes"
IK_EXPORT void set_budget(const std::string& node, int64_t bytes);

IK_EXPORT Stats stats();
// What the period that stats() tells of moves of each block, in no order; empty where it tells of none.
IK_EXPORT std::vector<BlockMoves> planned_moves();
IK_EXPORT uint64_t block_number(const at::Tensor& x);  // The number in BlockMoves.
IK_EXPORT void reset_stats();
// Empty if all invariants hold; else a description of the first that does not. Stops the world while it
// looks.
IK_EXPORT std::string check_invariants();

// Names of the nodes where the tensor's block has a valid replica, the owner first; empty if it was never
// written.
IK_EXPORT std::vector<std::string> where(const at::Tensor& x);
// Brings the block to `node` (default: where it is, or its thread's home) and keeps it there until unpinned
// as often.
IK_EXPORT void pin(const at::Tensor& x, const std::optional<std::string>& node);
IK_EXPORT void unpin(const at::Tensor& x);
IK_EXPORT bool is_user_pinned(const at::Tensor& x);
IK_EXPORT void prefetch(const at::Tensor& x, const std::string& node);  // returns before the copy is done
// Replicated: read at several nodes at the same time. Operators then run where their other operands are.
IK_EXPORT void set_replicated(const at::Tensor& x, bool replicated);
IK_EXPORT void evict(const at::Tensor& x);  // Moves it from every accelerator to the host. Pinned: an error.
// The real tensor over a managed one's bytes, for a kernel of the program's own: at `node` (by default where
// it is), pinned there until leave(), whatever becomes of the managed tensor. With `write` the bytes count as
// written.
class IK_EXPORT Resident {
 public:
  explicit Resident(const at::Tensor& managed, const std::optional<std::string>& node = std::nullopt,
                    bool write = false);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  // Lets go. Again it does nothing.
  void leave();
  const at::Tensor& operator*() const { return real_; }
  const at::Tensor* operator->() const { return &real_; }
  const std::string& node() const { return node_; }

 private:
  const c10::Storage handle_;  // keeps the bytes
  std::string node_;
  at::Tensor real_;
  bool held_ = false;
  const bool write_;
};

// Blocks until every queue of every node has done its work.
IK_EXPORT void synchronize();
// Gives cached free memory back; returns how many bytes.
IK_EXPORT int64_t empty_cache();

// The node that the calling thread prefers for tensors born without operands (assigned at the first use: the
// least loaded node that computes). set_home returns the previous one; "" means none yet / assign at the next
// use.
IK_EXPORT std::string home();
// The process's LOCAL_RANK, as torchrun sets it; -1 where it has none, or no number.
IK_EXPORT int local_rank();
IK_EXPORT std::string set_home(const std::string& node);
// The node that best fits `nbytes` more: the one with most free bytes; with disperse, spread by homes taken
// first.
IK_EXPORT std::string find_device(int64_t nbytes, bool disperse);

// Experiments: a home and a random stream of their own, for the calling thread (and backward passes it
// starts).
IK_EXPORT int64_t enter_experiment(const std::string& name, std::optional<int64_t> memory);
IK_EXPORT void leave_experiment(int64_t token);

// Placements and moves as log lines (INNKEEPER_LOG=info): on or off.
IK_EXPORT void log_moves(bool on);

// A record of accesses since trace_start: text, one line an operator (the format is in trace/recorder.h).
IK_EXPORT void trace_start();
IK_EXPORT void trace_mark(const std::string& text);
IK_EXPORT std::string trace_stop();

// Periodic samples of bytes per node, for plots: at most `capacity` rows of (operator ordinal, bytes per
// node). c10::ValueError if every_ops is less than 1.
IK_EXPORT void sample_start(int64_t every_ops);
struct Samples {
  std::vector<std::string> nodes;
  std::vector<int64_t> op;                                 // operator ordinal of each row
  std::vector<std::vector<int64_t>> resident;              // [row][node] bytes
  std::vector<int64_t> bytes_fetched, bytes_written_back;  // [row] running totals
};
IK_EXPORT Samples sample_stop();

// Random streams: the stream that the calling thread draws from (its experiment's, else the
// process's).
IK_EXPORT void manual_seed(uint64_t seed);
IK_EXPORT uint64_t seed();  // a seed from the operating system; returns it
IK_EXPORT uint64_t initial_seed();
IK_EXPORT at::Tensor get_rng_state();  // a CPU uint8 tensor
IK_EXPORT void set_rng_state(const at::Tensor& state);

}  // namespace innkeeper::torch_layer
