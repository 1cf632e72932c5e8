// Discarded blocks: their bytes are nowhere, and are recomputed by the operator that computed them first
// (recorded_call.h, docs/design/recompute.md).
//
// The inputs of a discarded block stay as they are meanwhile: the recorded call keeps them alive, and they
// are shared, never owned, so an operator that is to write one finds it (Block::feeds_discarded). A block is
// not discarded while it feeds a discarded one, so no recorded call waits for another.
//
// Thread safety: as annotated; functions without an annotation may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "residency/block/recorded_call.h"
#include "residency/books/node_admission.h"
#include "residency/operands.h"

namespace innkeeper {

class Recomputer {
 public:
  // The arguments must outlive the object.
  Recomputer(BlockTable& table, Operands& operands, MemoryRelease& release)
      : table_(table), operands_(operands), release_(release) {}
  void set_index(RecomputeIndex index) { index_ = std::move(index); }

  // Whether plans may discard blocks.
  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  void set_on(bool on) { on_.store(on, std::memory_order_relaxed); }

  // Admits an operator to the node, recomputes its discarded operands and pins all (Operands::acquire).
  // `operands`: their bytes. Ensures: on success `admission` holds.
  Status gather(NodeId id, std::span<Access> accesses, Bytes operands,
                std::optional<NodeAdmission>& admission) IK_EXCLUDES(engine_mutex);

  // Gives up the block's only bytes, at the node, if its inputs allow it; false: they stay. The caller ends
  // `call` without a lock, since blocks may end with it.
  bool discard(Block& block, NodeId id, std::unique_ptr<RecordedCall>& call) IK_EXCLUDES(engine_mutex);
  bool discard(Block& block, NodeId id) {
    std::unique_ptr<RecordedCall> unused;
    return discard(block, id, unused);
  }
  // Recomputes the discarded blocks among these, and those that the blocks to be written feed. Requires: this
  // thread is admitted nowhere.
  Status recompute(std::span<const Access> accesses) IK_EXCLUDES(engine_mutex);
  // Recomputes every discarded block, before the process changes how it computes. Requires: as recompute().
  Status recompute_all() IK_EXCLUDES(engine_mutex);
  // Before memory is taken for good, and too little may be left for an operator's operands and result. Blocks
  // that cannot be recomputed now stay discarded.
  void recompute_while_possible() IK_EXCLUDES(engine_mutex);
  // A recorded call's operator has made the bytes of `block`, at the node and as those of `made`, which has
  // none afterwards.
  Status refill(Block& block, Block& made, NodeId id) IK_EXCLUDES(engine_mutex);
  void forget(Block& block) IK_EXCLUDES(engine_mutex);  // A discarded block ends.

  // Runs operators that are no part of the thread's program: neither a planner nor a record hears of them,
  // and their kernels at the node do not count as the program's.
  void run_untracked(NodeId id, const std::function<void()>& run);
  static bool is_untracked() { return thread_state().recomputing != 0; }

  int64_t recomputed() const { return recomputed_.load(); }
  void reset_counts() { recomputed_.store(0); }

 private:
  struct Discarded {
    std::unique_ptr<RecordedCall> call;
    bool under_way = false;  // A thread discards the block or recomputes it.
  };
  // One step towards the bytes of a discarded block. Releases and retakes the lock; the block may have ended
  // afterwards.
  Status recompute(Block& block) IK_REQUIRES(engine_mutex);
  bool fits(const RecordedCall& call, const Block& result) const IK_REQUIRES(engine_mutex);
  bool keep_inputs(Block& block, const RecordedCall& call) IK_REQUIRES(engine_mutex);
  void release_inputs(Block& block, const RecordedCall& call) IK_REQUIRES(engine_mutex);

  BlockTable& table_;
  Operands& operands_;
  MemoryRelease& release_;
  RecomputeIndex index_;
  std::atomic<bool> on_ = false;
  std::atomic<int64_t> recomputed_ = 0;
  std::unordered_map<const Block*, Discarded> discarded_ IK_GUARDED_BY(engine_mutex);
  // By input: the discarded blocks that it feeds.
  std::unordered_map<const Block*, std::vector<Block*>> fed_by_ IK_GUARDED_BY(engine_mutex);
};

}  // namespace innkeeper
