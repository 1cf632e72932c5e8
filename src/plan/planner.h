// Follows one program through its periods and issues planned moves at the end of each operator
// (docs/design/plans.md).
//
//     Name name = planner.meet(block);              // At its first touch.
//     planner.ended(node, touches);                 // At each operator's end.
//     for (Order o; planner.next(o);) ...           // The moves that are due now.
//     planner.forget(name);                         // The block is about to die.
//
// A period that the program has run twice gets a plan. If the program leaves its period (evaluation, another
// length, one more operator) the planner orders nothing, and the engine moves blocks on demand. If the
// program returns to a known period, its plan is followed from there on.
//
// The planner connects parts that do not know each other: PeriodSearch finds periods in the History,
// ProgramCatalog holds the programs, PlanMaker plans them, Tracker follows one, ScheduleTrial compares that
// with following none, and WorkingSet tells other programs' planners how much this one needs.
//
// A long period's plan may be made in the background. Until it is done the period is followed without moves,
// or by the plan that it had before.
//
// Ownership: blocks are the engine's, and never dereferenced here.
// Thread safety: none; Engine guards it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"
#include "plan/engine_view.h"
#include "plan/history.h"
#include "plan/named_blocks.h"
#include "plan/period.h"
#include "plan/period_plan.h"
#include "plan/plan_maker.h"
#include "plan/program_catalog.h"
#include "plan/schedule_trial.h"
#include "plan/tracker.h"
#include "plan/working_set.h"

namespace innkeeper {
class Block;
}

namespace innkeeper::plan {

// A move that the engine is to start now.
struct Order {
  Block* block = nullptr;
  NodeId node = kNoNode;
  bool arrives = false;   // A fetch; otherwise the block leaves the node.
  bool discards = false;  // The block is discarded, if it can be recomputed.
};

// Bytes that a period copies of one block at all nodes; null: of all blocks that each period creates.
struct Moved {
  Block* block = nullptr;
  Bytes arriving{0};
  Bytes leaving{0};  // Upper bound: a clean block is not copied again.
};

class Planner {
 public:
  using FreeSpace = EngineView::FreeSpace;
  using About = EngineView::About;
  using RunInBackground = PlanMaker::RunInBackground;

  // The callbacks are called by the planner's own methods only.
  Planner(FreeSpace free_space, About about, RunInBackground run_in_background = {})
      : engine_(std::move(free_space), std::move(about)),
        maker_(engine_, std::move(run_in_background)),
        trial_(engine_) {}
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  // Requires: the block has no name, or its name was forgotten.
  Name meet(Block* block);
  void forget(Name name);
  // `arrived`: bytes of the program's blocks that arrived at nodes where they are used, so far.
  void ended(NodeId node, std::span<const Touch> touches, const OperatorTime& time = {},
             Bytes arrived = Bytes(0));
  // Gives the next move that is due. False: there is none.
  bool next(Order& order);
  // The fetch that next() gave last found no free space (Tracker::postpone).
  void postpone() { tracker_.postpone(); }
  // The engine evicted blocks at a node without an order.
  void unplanned(NodeId node, Bytes size);

  // Whether a plan is followed and issues moves.
  bool follows() const;
  WorkingSet& working_set() { return working_set_; }
  // Whether the program has left its plan since the last call (Tracker::take_has_left).
  bool has_left() { return tracker_.take_has_left(); }
  // Whether the next operator may have to run again: a period is being learned, or its plan discards a result
  // of the operator. Otherwise its arguments need not be kept.
  bool may_discard_next() const;
  // Whether the next operator is the first of a period.
  bool begins() const { return tracker_.followed() != nullptr && tracker_.position().step == 0; }
  // Cost of the last period that was followed to its end.
  const PeriodCost& cost() const { return cost_; }
  // Moves of that period, one entry for each block. O(moves).
  std::vector<Moved> moved() const;
  // Periods of the program that were followed from end to end.
  int64_t periods() const { return followed_times_; }
  // Periods that the program left early.
  int64_t divergences() const { return divergences_; }
  // Stops following. Ensures: shortages are forgotten, and each program is planned again.
  void interrupt();
  void reset_counts();

 private:
  void follow(const PlanPosition& at);
  void end_period();
  void diverge();
  void learn(int64_t length);
  void make_plan(KnownProgram& known);
  void take_plan(KnownProgram& known, PeriodPlan plan);
  void remove_program(const KnownProgram& known);
  void estimate_working_set();

  const EngineView engine_;
  const PlanMaker maker_;
  NamedBlocks blocks_;
  History history_;
  PeriodSearch search_;
  ProgramCatalog catalog_;
  Tracker tracker_;
  ScheduleTrial trial_;
  WorkingSet working_set_;

  PeriodCost cost_;
  const KnownProgram* followed_ = nullptr;  // Followed to its end last; null: forgotten, or planned again.
  int64_t periods_ = 0;                     // Periods of plans that were followed from end to end.
  int64_t followed_times_ = 0;              // Periods of the program that were followed so.
  int64_t divergences_ = 0;
};

inline bool Planner::follows() const {
  const KnownProgram* const known = tracker_.followed();
  return known != nullptr && known->is_planned() && !trial_.suspended();
}

inline bool Planner::may_discard_next() const {
  const KnownProgram* const known = tracker_.followed();
  return known == nullptr || !known->is_planned() || known->is_being_planned() ||
         (!trial_.suspended() && known->makes_discarded(tracker_.position().step));
}

}  // namespace innkeeper::plan
