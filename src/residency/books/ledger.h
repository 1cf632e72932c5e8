// The books of each node's budget: charges, and which operators wait for free memory (I4, I7).
//
// A charge adds bytes to a node's `used`, never above its budget. The ledger only says yes or no; Evictor
// makes free memory. Admission of operators to a node: node_admission.h.
//
// Thread safety: as annotated; functions without an annotation may be called from any thread.
#pragma once

#include "base/status.h"
#include "residency/block/block_table.h"

namespace innkeeper {

class Ledger {
 public:
  // `table` must outlive the ledger.
  explicit Ledger(BlockTable& table) : table_(table) {}

  Bytes budget(NodeId id) const { return Bytes(table_.node(id).budget.load(std::memory_order_relaxed)); }
  Bytes used(NodeId id) const { return Bytes(table_.node(id).used.load(std::memory_order_relaxed)); }
  Bytes free(NodeId id) const { return budget(id) - used(id); }

  // Charges `size` bytes if the budget has them. Lock-free.
  static bool try_charge(Node& node, Bytes size);
  void uncharge(NodeId id, Bytes size) noexcept {
    table_.node(id).used.fetch_sub(round_up(size).count(), std::memory_order_acq_rel);
  }

  // Bytes of replicas that the user pinned, or whose real memory is held outside.
  Bytes pinned_bytes(const Node& node) const IK_REQUIRES(engine_mutex);
  // Most bytes that one operator can have at the node now: the budget less pinned_bytes().
  Bytes unpinned_budget(NodeId id) const IK_EXCLUDES(engine_mutex);

  // Whether operators of other threads run at the node.
  static bool others_run(const Node& node);
  // Whether every operator at the node waits for memory there, this thread's included.
  bool all_wait(const Node& node) const IK_REQUIRES(engine_mutex);
  // Waits for a change. Meanwhile neither this thread's operators nor its moves at the node count as able to
  // free memory. Releases the lock meanwhile.
  void wait_for_memory(Node& node) IK_REQUIRES(engine_mutex);
  // The failure of a request for `size` bytes at the node, with the numbers.
  Status out_of_memory(const Node& node, Bytes size) const IK_REQUIRES(engine_mutex);

 private:
  BlockTable& table_;
};

}  // namespace innkeeper
