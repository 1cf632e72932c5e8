// Follows a program through its period, and gives the planned moves that are due.
//
// At each operator's end the tracker compares the operator with the expected step, and the moves of that step
// become due: O(1), and O(1) for each move. Evictions and discards are given first, so that fetches find the
// space; fetches to one node are given in the order of their uses. A fetch that finds no free space is given
// again after the next operator, and fetches to other nodes continue meanwhile.
//
// Ownership: the followed program is the catalog's, and must stay valid until another one, or none, is
// followed.
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"
#include "plan/history.h"
#include "plan/known_program.h"

namespace innkeeper::plan {

// A planned move that is due.
struct PendingMove {
  NodeId node = kNoNode;
  Name name = 0;
  bool arrives = false;
  bool discards = false;
};

class Tracker {
 public:
  // Null: no program is followed.
  KnownProgram* followed() const { return at_.known; }
  // The step that is expected next. Requires: followed() is not null.
  const PlanPosition& position() const { return at_; }
  // Whether the current period is followed by a plan from its first step on.
  bool is_whole() const { return whole_; }
  // Whether the period before was, by the same plan.
  bool is_steady() const { return steady_; }

  // Follows a program from a position on, or the same one by a new plan. Moves that are due stay so.
  void follow(const PlanPosition& at);
  // Requires: the last step of a period has ended. `replanned`: there is a new plan, or there will be.
  void start_next_period(bool replanned);
  // The program has left its period: ends following, and nothing is due any more.
  void leave();
  // Ends following a program that has no moves.
  void forget() { at_.known = nullptr; }
  // Schedules were suspended or resumed: only a part of this period has moves, and none is due now.
  void break_period();

  // Whether the history's last operator is the expected one. Requires: followed() is not null.
  bool is_expected(const History& history) const;
  // The expected operator has ended. `issue`: its moves become due; otherwise they are left out. Returns
  // whether the period ends with it.
  bool advance(bool issue);
  // An operator has used these blocks: their fetches are not due any more, and postponed ones are due again.
  void used(std::span<const Touch> touches);

  // Gives the next move that is due. False: there is none.
  bool next(PendingMove& move);
  // The fetch that next() gave last found no free space. It is given again after the next operator, unless
  // that operator uses the block. Until then no fetch to the node is given, which would take its space.
  void postpone();
  // Whether the program has left its plan since the last call. Moves that the engine has not begun may be
  // useless then.
  bool take_has_left() { return std::exchange(has_left_, false); }

 private:
  // Fetches to a node that are due, in the order of their uses.
  struct Arrivals {
    NodeId node = kNoNode;
    std::deque<PendingMove> due;
    bool postponed = false;  // A fetch found no free space since the last operator.
  };

  Arrivals& arriving_at(NodeId node);
  std::deque<PendingMove>* next_list();  // Null: no move is due.
  void stop_ordering();

  PlanPosition at_;
  size_t move_ = 0;  // Index of the program's first move that was not issued.
  bool has_left_ = false;
  bool whole_ = false;
  bool steady_ = false;
  std::deque<PendingMove> leaving_;  // Evictions and discards that are due.
  std::vector<Arrivals> arriving_;   // By node, in the order of their first fetches.
  PendingMove given_;                // The move that next() gave last.
};

}  // namespace innkeeper::plan
