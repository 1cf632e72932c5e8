// Follows one program through its periods and issues planned moves at the end of each operator
// (docs/design/plans.md).
//
//     Name name = planner.meet(block);              // at its first touch
//     planner.ended(node, touches);                 // at each operator's end
//     for (Order o; planner.next(o);) ...           // what is to move now
//     planner.forget(name);                         // the block is about to die
//
// Once a period has been done twice it has a schedule. Where the program leaves it (evaluation, another
// length, one line more) nothing is ordered any more, and the engine pages as it does without a plan; where
// the program comes back to a period that is known, the schedule is taken up there.
//
// A schedule is made for the room that there is; bytes that the engine had to evict by itself meanwhile say
// that there is less (scratch memory of kernels, other programs), and the next period's is made for that.
//
// That of a long period may be made concurrently with the program. Until then the period is followed without
// orders, or by the schedule that it had before.
//
// Thread safety: none; Engine guards it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "plan/history.h"
#include "plan/on_demand.h"
#include "plan/period.h"
#include "plan/period_plan.h"
#include "plan/program.h"
#include "plan/score.h"
#include "plan/working_set.h"

namespace innkeeper {
class Block;  // never looked into
}

namespace innkeeper::plan {

struct Order {
  Block* block = nullptr;
  NodeId node = kNoNode;
  bool arrives = false;  // else it leaves,
  bool drops = false;    // The block is discarded, if it can be recomputed.
};

// What a period copies of one block at all nodes; null: of all blocks that each period creates.
struct Moved {
  Block* block = nullptr;
  Bytes arriving{0};
  Bytes leaving{0};  // Upper bound: a clean block is not copied again.
};

// Seconds; 0: unknown.
struct OperatorTime {
  double kernels = 0;
  double host = 0;   // Time since the operator before.
  double clock = 0;  // Clock of the node now; 0 also where other programs work there.
};

class Planner {
 public:
  // Bytes that blocks may have at a node, asked when a schedule is made; 0 where none is wanted.
  using Room = std::function<Bytes(NodeId)>;
  using About = std::function<AboutNode(NodeId)>;  // Asked when a schedule is made.
  // Does a job concurrently with the program, some time; none: what takes long is done at once.
  using RunInBackground = std::function<void(std::function<void()>)>;
  Planner(Room room, About about, RunInBackground run_in_background = {})
      : room_(std::move(room)),
        about_(std::move(about)),
        run_in_background_(std::move(run_in_background)),
        recent_(kRecent) {}

  Name meet(Block* block);
  void forget(Name name);
  // `arrived`: bytes of the program's blocks, at nodes where they are used, so far.
  void ended(NodeId node, std::span<const Touch> touches, const OperatorTime& time = {},
             Bytes arrived = Bytes(0));
  // The next thing to move, if there is one left.
  bool next(Order& order);
  // There was no room for what next() gave last. It is ordered again after the next operator, unless that has
  // used it, and until then nothing else arrives at the node, which would take its room.
  void postpone();
  // The engine had to evict so many bytes at a node by itself.
  void unplanned(NodeId node, Bytes size);

  bool follows() const {
    return known_ != nullptr && known_->planned && !score_.suspended();
  }  // The plan is followed and issues moves.
  WorkingSet& working_set() { return working_set_; }
  // It has left its plan since this was asked last, so that what is planned may not be wanted.
  bool has_left() { return std::exchange(has_left_, false); }
  // Whether the next operator may have to run again: a period is being learned, or its plan drops what the
  // operator makes. Otherwise its arguments need not be kept.
  bool may_drop_next() const {
    return known_ == nullptr || !known_->planned || known_->making != nullptr ||
           (!score_.suspended() && known_->makes_dropped[static_cast<size_t>(step_)]);
  }
  bool begins() const {
    return known_ != nullptr && step_ == 0;
  }                                                     // The next operator is the first of a period.
  const PeriodCost& cost() const { return cost_; }      // Of the last period that was followed to its end.
  std::vector<Moved> moved() const;                     // Moves of that period, one entry for each block.
  int64_t periods() const { return followed_times_; }   // followed from end to end
  int64_t divergences() const { return divergences_; }  // Periods that the program left early.
  // Nothing is followed any more, and what was lacking is forgotten.
  void interrupt();
  void reset_counts() {
    for (KnownProgram& known : programs_) known.settles_at -= periods_;
    periods_ = followed_times_ = divergences_ = 0;
    cost_ = {};
    followed_ = nullptr;
  }

 private:
  struct PlanInProgress {
    std::atomic<bool> done{false};  // The plan is there, and is not written any more.
    PeriodPlan plan;
  };
  struct KnownProgram {
    std::shared_ptr<const Program> program;
    std::shared_ptr<PlanInProgress> making;  // Its first plan or a later one; null: none is being made.
    bool planned = false;                    // `moves` have been made.
    bool placed = false;                     // Its steps stand in places_.
    std::vector<PlannedMove> moves;
    std::vector<bool> makes_dropped;  // By step: whether a result of the step is dropped.
    PeriodCost cost;
    std::array<Bytes, kMaxNodes> touched{};    // Bytes that the program touches per node; each block once.
    WorkingSet::ByNode working_set{};          // Working set per node.
    NodeId backing = kNoNode;                  // Node that receives evicted blocks; it may itself spill.
    std::array<int64_t, kMaxNodes> room{};     // Free bytes per node that the schedule was made for.
    std::array<int64_t, kMaxNodes> lacking{};  // Shortage per node: bytes of `room` that were not there.
    std::array<int64_t, kMaxNodes> best{};     // Value of `lacking` with which a period evicted least.
    int64_t least_left = INT64_MAX;            // Bytes that were evicted in that period.
    int scheduled = 0;                         // Schedules made for a shortage.
    int changes = 0;                           // Replans for other free space since kQuietPeriods.
    int64_t settles_at = 0;                    // Period from which on other free space leads to a replan.

    void forget_what_lacked() {
      lacking.fill(0);
      best.fill(0);
      least_left = INT64_MAX;
      scheduled = 0;
    }
  };
  struct PlanPosition {
    KnownProgram* known = nullptr;
    int64_t step = 0;
  };
  struct PendingMove {
    NodeId node = kNoNode;
    Name name = 0;
    bool drops = false;
  };
  // Fetches to a node that are due, in the order of their uses.
  struct Arrivals {
    NodeId node = kNoNode;
    std::deque<PendingMove> due;
    bool postponed = false;  // A fetch found no free space since the last operator.
  };
  struct NamedBlock {
    Name name = 0;
    Block* block = nullptr;
  };

  static constexpr size_t kRecent = size_t{1} << 16;
  // Operators between two looks at free space and speed, and before the first.
  static constexpr int64_t kRoomEvery = 256;
  static constexpr int64_t kRoomFirst = 16;
  static constexpr size_t kMostPrograms = 8;
  // Operators that must agree with a known program before it is followed again.
  static constexpr int64_t kRejoinLength = 8;
  // Positions with one key that are compared when a program is looked for.
  static constexpr int kMostPositions = 64;
  static constexpr int kMostSchedules = 8;  // Schedules of one program.
  // Shorter periods, in operators, are scheduled several at a time.
  static constexpr int64_t kShort = 256;
  // Periods from this length on are scheduled on a background thread; from half of it where recompute, which
  // takes longer to plan, is on.
  static constexpr int64_t kLong = 2048;
  // Periods without other free space after which a replan waits no longer than at first.
  static constexpr int64_t kQuietPeriods = 16;
  // At most 2 to the power of this many periods pass before other free space leads to a replan.
  static constexpr int kMostChanges = 4;
  // 1/16 of the free space: a period adds at most this much to a node's shortage.
  static constexpr int64_t kShortageTolerance = 16;
  // Replan when free space changed by more than 1/16.
  static constexpr int64_t kReplanThreshold = 16;

  Block* block_of(Name name) const;
  void count(NodeId node, std::span<const Touch> touches, const OperatorTime& time, Bytes arrived);
  bool give(std::deque<PendingMove>& due, bool arrives, Order& order);
  Arrivals& arriving_at(NodeId node);
  void order_step();
  void stop_ordering();
  void end_period();
  void diverge();
  void rejoin();
  bool was(const KnownProgram& known, int64_t step, int64_t births_before) const;
  void learn(int64_t length);
  void refuse(int64_t length);
  void make_plan(KnownProgram& known);
  void take_plan(KnownProgram& known, PeriodPlan plan);
  void drop(const KnownProgram& known);
  void estimate_working_set();
  bool learn_what_lacks(KnownProgram& known);
  bool room_changed(KnownProgram& known);
  void enter(KnownProgram& known, int64_t step, int64_t births_before);

  const Room room_;
  const About about_;
  const RunInBackground run_in_background_;
  History history_;
  PeriodFinder finder_;
  int64_t refused_until_ = 0;  // Operator from which on periods are looked for again.
  int64_t refused_ = 0;        // Length of the period that was refused last, operators.
  int refusals_ = 0;           // Refusals of that length, one after another.

  std::list<KnownProgram> programs_;                        // Newest first.
  std::unordered_multimap<uint64_t, PlanPosition> places_;  // By key of an operator.
  KnownProgram* known_ = nullptr;                           // The followed program.
  int64_t step_ = 0;                                        // Its step that is expected next.
  int64_t births_before_ = 0;                               // Births before the present period.
  size_t move_ = 0;                                         // Its first move that was not issued.
  bool has_left_ = false;
  bool whole_ = false;                          // The present period is followed from its first step on.
  bool steady_ = false;                         // The one before was.
  std::array<int64_t, kMaxNodes> unplanned_{};  // Bytes evicted by the engine in the present period.
  std::deque<PendingMove> leaving_;             // Evictions and drops due now.
  std::vector<Arrivals> arriving_;              // Planned fetches due now, by node; issued after leaving_.
  PendingMove given_;                           // The move that next() gave last.
  PeriodCost cost_;
  const KnownProgram* followed_ = nullptr;  // Followed to its end last; null: forgotten, or planned again.
  int64_t periods_ = 0;                     // Periods of schedules that were followed from end to end.
  int64_t followed_times_ = 0;              // Periods of the program that were followed so.
  int64_t divergences_ = 0;
  // What all would have cost on demand: a model of each node that has too little room.
  std::array<std::unique_ptr<OnDemand>, kMaxNodes> on_demand_;
  size_t models_ = 0;  // All models have a lower index.
  std::array<double, kMaxNodes> clocks_{};
  Score score_;
  WorkingSet working_set_;

  std::vector<NamedBlock> recent_;               // By name; the newest replaces the oldest.
  std::unordered_map<Name, Block*> long_lived_;  // Blocks that have outlived their place in recent_.
};

}  // namespace innkeeper::plan
