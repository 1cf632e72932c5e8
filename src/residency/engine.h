// The engine: it knows where every block's bytes are, brings them where an operator needs them and frees
// memory for them. It knows no tensor, no kernel and no PyTorch.
//
// Engine is the facade over its parts; each part's header is its contract. A part uses the parts above it in
// this list alone (tools/check_layers.py), but for SpaceSource:
//     BlockTable     nodes, blocks, the mutex          Operands      pins, births and ends of blocks
//     Ledger         charges against budgets           Recomputer    discarded blocks
//     LastingPins    pins that outlast an operator     PlanExecutor  what plans order
//     Mover          moves between nodes               Requests      pin, prefetch, evict, read one block
//     Evictor        free memory, victims
//
// An operator runs like this:
//     std::optional<NodeAdmission> admission;  // one operator at a time where memory is short
//     IK_RETURN_IF_ERROR(engine.gather(node, accesses, bytes, admission));  // at `node`, pinned
//     ... the kernel; its allocations are charged to the evictor ...
//     engine.adopt(block, node, memory);          // each fresh result, pinned as operands are
//     engine.release(node, accesses, operation);  // operands and results
//
// Invariants: I1 to I12 (docs/design/coherence.md); each place that keeps one names it.
//
// Thread safety: every function may be called from any thread. The program orders two threads that use one
// block where one of them writes it, as PyTorch requires (I8). Locks: one mutex, BlockTable's; never held
// across a copy, an allocation, a kernel or a wait for a device (I10).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "residency/invariants.h"
#include "residency/plan_executor.h"
#include "residency/requests.h"

namespace innkeeper {

// Functions that the engine calls; each may be null.
struct Observers {
  MemoryObserver memory = nullptr;
  EscapeProbe escapes = nullptr;
  CopyWatch copies = nullptr;
  RecomputeIndex recorded_calls = nullptr;
};

class Engine {
 public:
  // Requires: one host node, at most one disk node. Evicted bytes go from an accelerator to the host, from
  // there to the disk.
  Engine(std::vector<NodeSetup> nodes, std::unique_ptr<EvictionPolicy> policy);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Replaces those that are not null. Requires: no block was created yet.
  void set_observers(Observers observers);

  // ---- parts
  BlockTable& table() { return table_; }
  const BlockTable& table() const { return table_; }
  Evictor& evictor() { return evictor_; }
  Mover& mover() { return mover_; }
  Recomputer& recomputer() { return recomputer_; }
  PlanExecutor& plans() { return plans_; }
  const PlanExecutor& plans() const { return plans_; }
  Requests& requests() { return requests_; }
  const Requests& requests() const { return requests_; }

  // ---- nodes
  size_t node_count() const { return table_.nodes().size(); }
  Device& device(NodeId node) const { return table_.device(node); }
  const std::vector<NodeId>& computing_nodes() const { return table_.computing(); }
  NodeId host() const { return table_.host(); }
  NodeId disk() const { return table_.disk(); }
  Bytes budget(NodeId node) const { return ledger_.budget(node); }
  Bytes used(NodeId node) const { return ledger_.used(node); }
  Bytes free(NodeId node) const { return ledger_.free(node); }
  Bytes unpinned_budget(NodeId node) const { return ledger_.unpinned_budget(node); }
  // As Evictor::set_budget(), after discarded blocks have been recomputed if the budget shrinks.
  Status set_budget(NodeId node, Bytes budget);

  // ---- blocks: Operands
  Block* create(Bytes size, Block::Space space = {}) { return table_.create(size, std::move(space)); }
  Block::Space destroy(Block* block);
  void adopt(Block& block, NodeId node, Memory memory) { operands_.adopt(block, node, std::move(memory)); }
  void replace(Block& block, NodeId node, Memory memory, Bytes size) {
    operands_.replace(block, node, std::move(memory), size);
  }
  Status resize_unwritten(Block& block, Bytes size) { return operands_.resize_unwritten(block, size); }
  Memory detach(Block& block, NodeId node) { return operands_.detach(block, node); }

  // ---- operators
  NodeAdmission admit(NodeId node, Bytes operands) { return NodeAdmission(table_, node, operands); }
  Status gather(NodeId node, std::span<Access> accesses, Bytes operands,
                std::optional<NodeAdmission>& admission) {
    return recomputer_.gather(node, accesses, operands, admission);
  }
  Status acquire(NodeId node, std::span<Access> accesses) { return operands_.acquire(node, accesses); }
  // Releases the pins that are still marked in `accesses`, takes moves on, and tells the planner and records
  // of the accesses. An operation that has a name stands in records.
  void release(NodeId node, std::span<Access> accesses, const trace::Operation& operation = {});
  // acquire() and release() for work on the bytes that ends by itself, on any thread: an operator that finds
  // no memory at `node` meanwhile waits for that end.
  Status pin_async(NodeId node, std::span<Access> accesses);
  void unpin_async(NodeId node, std::span<Access> accesses);
  // The access of the thread's last Requests::hold(): the caller releases it, or keeps it as escaped.
  Access release_hold(Block& block, NodeId node) { return pins_.release_hold(block, node); }
  void keep_escaped(NodeId node, Access& access) { pins_.keep_escaped(node, access); }
  NodeId place(std::span<const Access> accesses, NodeId preferred) const {
    return operands_.place(accesses, preferred);
  }

  // ---- observation
  Stats stats();
  // Budget, resident, peak, evictions and operators of one node. Takes no lock, so the numbers need not be of
  // one moment.
  NodeStats glance(NodeId node) const;
  void reset_stats();
  void reset_peak(NodeId node);
  void count_operator(NodeId node) { table_.node(node).ops.fetch_add(1, std::memory_order_relaxed); }
  std::string check_invariants() { return innkeeper::check_invariants(table_); }
  // Waits until the program's work on every device is done, and moves have landed.
  Status synchronize();
  Bytes trim();  // Cached free memory of all nodes, in bytes, which the devices give back.

 private:
  BlockTable table_;
  Ledger ledger_;
  LastingPins pins_;
  ProgramTrackers trackers_;
  Mover mover_;
  Evictor evictor_;
  Operands operands_;
  Recomputer recomputer_;
  PlanExecutor plans_;
  Requests requests_;
};

}  // namespace innkeeper
