// The plan of a period: the moves at all nodes of a program.
//
// plan_period() is a pure function of the program and of the engine's answers about its nodes, so another
// thread may call it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"
#include "plan/program.h"
#include "plan/schedule.h"
#include "plan/speed.h"

namespace innkeeper::plan {

// Bytes that a plan moves in a period, at all nodes.
struct PeriodCost {
  int64_t operators = 0;  // Operators of the period; 0: no period is known.
  int64_t times = 1;      // Consecutive periods that one schedule covers.
  Bytes arriving{0};      // Planned bytes per period.
  Bytes leaving{0};
  Bytes bound{0};            // Least bytes that any plan without recompute fetches (bound.h).
  Bytes shortage{0};         // Free space that is missing: with so much more nothing would move.
  double least_copying = 0;  // Time that a link needs for `bound`, seconds; 0: unknown.
};

// The node that receives blocks that leave the others, if there is a tier below it.
struct Backing {
  NodeId node = kNoNode;
  Bytes space{0};  // Free space for such blocks.
};

struct AboutNode {
  std::string name;  // Name of the node, for messages.
  Speed speed = {};
  bool may_discard = false;  // The plan may recompute.
  NodeId backing = kNoNode;  // Node that receives evicted blocks; it may itself spill.
};

// A node that the program uses.
struct PlannedNode {
  NodeId node = kNoNode;
  AboutNode about;
  Bytes touched{0};  // Bytes touched per period; each block once.
  Bytes whole{0};    // Free space that the engine grants to blocks; 0: nothing is to move.
  Bytes space{0};    // Part of it that blocks have.

  bool fits() const { return whole <= Bytes(0) || space <= Bytes(0) || touched <= space; }
};

struct PeriodPlan {
  std::vector<PlannedMove> moves;  // By step; within a step, evictions first.
  PeriodCost cost;
  // Most bytes per node that are alive there at once, or away from nodes that it backs. With this much free
  // space nothing would move.
  std::array<Bytes, kMaxNodes> working_set{};
  std::vector<std::string> said;  // One line of the log for each node with moves.
};

// `times`: number of consecutive periods of the user's program that `program` consists of.
PeriodPlan plan_period(const Program& program, int64_t times, const std::vector<PlannedNode>& nodes,
                       const Backing& backing = {});

}  // namespace innkeeper::plan
