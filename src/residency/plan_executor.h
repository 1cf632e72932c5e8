// Carries out plans: at each operator's end the thread's planner hears of its accesses, and this thread
// issues the moves that the planner orders.
//
// Nothing here waits for free memory or for another thread's move. An order that cannot be carried out at
// once is repeated after the next operator, or left to the operator that needs the block.
//
// Thread safety: every function may be called from any thread.
// Locks: a tracker's mutex, then engine_mutex.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "residency/evictor.h"
#include "residency/recomputer.h"
#include "trace/stream.h"

namespace innkeeper {

class PlanExecutor {
 public:
  // The arguments must outlive the object.
  PlanExecutor(BlockTable& table, const Ledger& ledger, const LastingPins& pins, ProgramTrackers& trackers,
               Evictor& evictor, Mover& mover, Recomputer& recomputer);

  // Whether movement is planned from the first eviction on (the default).
  void set_planning(bool on);
  // Whether plans may discard blocks. Known periods are planned again.
  void set_recompute(bool on);
  // Plans for long periods are made on a thread of their own. Requires: no block was created yet.
  void plan_in_background() { trackers_.plan_in_background(); }
  PlanningStats planning() const;
  std::vector<BlockMoves> planned_moves() const;  // Moves of the period in planning().

  // Every operator's accesses and every block's end, for records.
  const std::shared_ptr<trace::Stream>& stream() const { return stream_; }
  // Whether a planner or a record listens. Two relaxed loads.
  bool is_heard() const { return trackers_.follows() || stream_->on(); }
  // An operator has ended at the node. Requires: is_heard().
  void observe(NodeId id, std::span<const Access> accesses, const trace::Operation& operation);
  // The block ends: no plan names it any more.
  void forget(const Block& block) {
    if (stream_->on() && !Recomputer::is_untracked()) [[unlikely]]
      stream_->freed(block.id());
    if (const BlockName name(block.name_.load(std::memory_order_acquire)); !name.none()) [[unlikely]]
      forget_name(name);
  }
  // For the calling thread: plan::Planner::may_discard_next(); true while there is a record.
  bool may_discard_next();
  void reset_counts();

 private:
  void follow_if_memory_allows(NodeId id, const trace::Accesses& told, std::span<const Access> accesses);
  void follow(NodeId id, const trace::Accesses& told, std::span<const Access> accesses)
      IK_EXCLUDES(engine_mutex);
  ProgramTracker* tracker_of_thread(Stamp now);
  void hear(ProgramTracker& tracker, NodeId id, const trace::Accesses& told, std::span<const Access> accesses)
      IK_REQUIRES(tracker.mutex);
  void end_operator(ProgramTracker& tracker, NodeId id, Stamp now) IK_REQUIRES(tracker.mutex);
  void carry_out(plan::Planner& planner, std::vector<std::unique_ptr<RecordedCall>>& unused)
      IK_EXCLUDES(engine_mutex);
  void evict_as_planned(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);
  bool fetch_as_planned(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);
  ComputeTime time_since_period_before(ProgramTracker& tracker) const IK_REQUIRES(tracker.mutex);
  plan::Name name_of(ProgramTracker& tracker, Block& block) IK_REQUIRES(tracker.mutex);
  void forget_name(BlockName name);
  Bytes plannable(NodeId id) IK_EXCLUDES(engine_mutex);

  BlockTable& table_;
  const Ledger& ledger_;
  const LastingPins& pins_;
  ProgramTrackers& trackers_;
  Evictor& evictor_;
  Mover& mover_;
  Recomputer& recomputer_;
  const std::shared_ptr<trace::Stream> stream_;
};

}  // namespace innkeeper
