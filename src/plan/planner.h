// Follows one program through its periods and says at each operator's end what is to move
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
#include "plan/wants.h"

namespace innkeeper {
class Block;  // never looked into
}

namespace innkeeper::plan {

struct Order {
  Block* block = nullptr;
  NodeId node = kNoNode;
  bool arrives = false;  // else it leaves,
  bool drops = false;    // and its bytes are computed again, where that can be done
};

// What a period copies of one block at all nodes; null: of all blocks that each period creates.
struct Moved {
  Block* block = nullptr;
  Bytes arriving{0};
  Bytes leaving{0};  // at most: what has not been written since it left last is not copied again
};

// Seconds; 0: unknown.
struct OperatorTime {
  double kernels = 0;
  double host = 0;   // since the operator before
  double clock = 0;  // of the node, now; 0 also where others work there
};

class Planner {
 public:
  // Bytes that blocks may have at a node, asked when a schedule is made; 0 where none is wanted.
  using Room = std::function<Bytes(NodeId)>;
  using About = std::function<AboutNode(NodeId)>;  // Asked when a schedule is made.
  // Does a job concurrently with the program, some time; none: what takes long is done at once.
  using Beside = std::function<void(std::function<void()>)>;
  Planner(Room room, About about, Beside beside = {})
      : room_(std::move(room)), about_(std::move(about)), beside_(std::move(beside)), recent_(kRecent) {}

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

  bool follows() const { return known_ != nullptr && known_->planned && !score_.suspended(); }  // with orders
  Wants& wants() { return wants_; }  // so that others may have the rest
  // It has left its plan since this was asked last, so that what is planned may not be wanted.
  bool has_left() { return std::exchange(has_left_, false); }
  // Whether the next operator may have to run again: a period is being learned, or its plan drops what the
  // operator makes. Otherwise its arguments need not be kept.
  bool may_drop_next() const {
    return known_ == nullptr || !known_->planned || known_->making != nullptr ||
           (!score_.suspended() && known_->makes_dropped[static_cast<size_t>(step_)]);
  }
  bool begins() const { return known_ != nullptr && step_ == 0; }  // its next operator is a period's first
  const PeriodCost& cost() const { return cost_; }      // of the period that was followed to its end last,
  std::vector<Moved> moved() const;                     // and what it moves; of each block once
  int64_t periods() const { return followed_times_; }   // followed from end to end
  int64_t divergences() const { return divergences_; }  // that ended before their end
  // Nothing is followed any more, and what was lacking is forgotten.
  void interrupt();
  void reset_counts() {
    for (Known& known : programs_) known.settles_at -= periods_;
    periods_ = followed_times_ = divergences_ = 0;
    cost_ = {};
    followed_ = nullptr;
  }

 private:
  struct Making {
    std::atomic<bool> done{false};  // the plan is there, and nobody writes it any more
    PeriodPlan plan;
  };
  struct Known {
    std::shared_ptr<const Program> program;
    std::shared_ptr<Making> making;  // its plan, or another one; null: none is being made
    bool planned = false;            // `moves` have been made
    bool placed = false;             // its steps stand in places_
    std::vector<Move> moves;
    std::vector<bool> makes_dropped;  // by step: something that it makes is dropped
    PeriodCost cost;
    std::array<Bytes, kMaxNodes> touched{};    // bytes, by node, each block once,
    Wants::ByNode wanted{};                    // and what it has a use for
    NodeId backing = kNoNode;                  // what leaves goes there, and perhaps on from there
    std::array<int64_t, kMaxNodes> room{};     // bytes that the schedule was made for, by node,
    std::array<int64_t, kMaxNodes> lacking{};  // and how many were missing of what the engine said
    std::array<int64_t, kMaxNodes> best{};     // `lacking` with which the least left in a period,
    int64_t least_left = INT64_MAX;            // and how much that was
    int scheduled = 0;                         // times, for what was lacking
    int changes = 0;         // of the room, that led to another schedule, since it was quiet
    int64_t settles_at = 0;  // the period from which on such a change is looked for

    void forget_what_lacked() {
      lacking.fill(0);
      best.fill(0);
      least_left = INT64_MAX;
      scheduled = 0;
    }
  };
  struct Place {
    Known* known = nullptr;
    int64_t step = 0;
  };
  struct Due {
    NodeId node = kNoNode;
    Name name = 0;
    bool drops = false;
  };
  // What is to arrive at a node, in the order of its uses.
  struct Arrivals {
    NodeId node = kNoNode;
    std::deque<Due> due;
    bool postponed = false;  // since the last operator
  };
  struct Met {
    Name name = 0;
    Block* block = nullptr;
  };

  static constexpr size_t kRecent = size_t{1} << 16;
  static constexpr int64_t kRoomEvery = 256;  // operators: then the models are told room and speed,
  static constexpr int64_t kRoomFirst = 16;   // and first behind this one
  static constexpr size_t kKnown = 8;         // programs
  static constexpr int64_t kJoined = 8;       // operators that must be a program's before it is taken up
  static constexpr int kPlaces = 64;          // that are tried for one key
  static constexpr int kSchedules = 8;        // of one program
  static constexpr int64_t kShort = 256;      // operators: shorter periods are scheduled several at a time,
  static constexpr int64_t kLong = 2048;      // and those from here on concurrently: half as long ones
                                              // where things may be computed again, which takes more time
  static constexpr int64_t kQuiet = 16;       // periods without another room,
  static constexpr int kMostChanges = 4;      // and as many as two to the power of this are not looked at
  static constexpr int64_t kLackShare =
      16;  // of the room, that may be lacking more after one period, or must
           // have changed for another schedule

  Block* block_of(Name name) const;
  void count(NodeId node, std::span<const Touch> touches, const OperatorTime& time, Bytes arrived);
  bool give(std::deque<Due>& due, bool arrives, Order& order);
  Arrivals& arriving_at(NodeId node);
  void order_step();
  void stop_ordering();
  void end_period();
  void diverge();
  void rejoin();
  bool was(const Known& known, int64_t step, int64_t births_before) const;
  void learn(int64_t length);
  void refuse(int64_t length);
  void make_plan(Known& known);
  void take_plan(Known& known, PeriodPlan plan);
  void drop(const Known& known);
  void guess_what_is_wanted();
  bool learn_what_lacks(Known& known);
  bool room_changed(Known& known);
  void enter(Known& known, int64_t step, int64_t births_before);

  const Room room_;
  const About about_;
  const Beside beside_;
  History history_;
  PeriodFinder finder_;
  int64_t refused_until_ = 0;  // operators
  int64_t refused_ = 0;        // a period of that length, last
  int refusals_ = 0;           // of that length, one after another

  std::list<Known> programs_;                        // the newest in front
  std::unordered_multimap<uint64_t, Place> places_;  // by key
  Known* known_ = nullptr;                           // what is followed
  int64_t step_ = 0;                                 // of it, that is expected next
  int64_t births_before_ = 0;                        // this period
  size_t move_ = 0;                                  // the first that is not ordered yet
  bool has_left_ = false;
  bool whole_ = false;                          // the period is followed from its begin on,
  bool steady_ = false;                         // and so was the one before
  std::array<int64_t, kMaxNodes> unplanned_{};  // bytes in this period
  std::deque<Due> leaving_;                     // to be ordered now
  std::vector<Arrivals> arriving_;              // Planned fetches due now, by node; issued after leaving_.
  Due given_;                                   // by next(), last
  PeriodCost cost_;
  const Known* followed_ = nullptr;  // to its end, last; null where it is known no longer, or planned again
  int64_t periods_ = 0;              // that were followed from end to end, as scheduled;
  int64_t followed_times_ = 0;       // as the program counts them
  int64_t divergences_ = 0;
  // What all would have cost on demand: a model of each node that has too little room.
  std::array<std::unique_ptr<OnDemand>, kMaxNodes> on_demand_;
  size_t models_ = 0;  // All models have a lower index.
  std::array<double, kMaxNodes> clocks_{};
  Score score_;
  Wants wants_;

  std::vector<Met> recent_;                  // by name
  std::unordered_map<Name, Block*> elders_;  // that have outlived their place there
};

}  // namespace innkeeper::plan
