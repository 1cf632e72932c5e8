// What a period of a program moves, at all of its nodes: a pure function of the program and of what the
// engine says of the nodes. So it may be made on another thread.
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

// What a period of a program moves at all nodes.
struct PeriodCost {
  int64_t operators = 0;  // 0: no period is known
  int64_t times = 1;      // consecutive periods that one schedule covers
  Bytes arriving{0};      // as planned
  Bytes leaving{0};
  Bytes bound{0};            // no plan has less arriving (bound.h), unless it computes things again
  Bytes shortage{0};         // of room: with so much more nothing would move
  double least_copying = 0;  // seconds that a link takes at least for the bound; 0: unknown
};

// Where what leaves the other nodes goes, if that has a tier below, and the room that blocks may have there.
struct Backing {
  NodeId node = kNoNode;
  Bytes room{0};
};

struct AboutNode {
  std::string name;  // for messages
  Speed speed = {};
  bool drops = false;        // what is planned may be to compute blocks again
  NodeId backing = kNoNode;  // Backing's
};

// A node that the program does anything at.
struct PlannedNode {
  NodeId node = kNoNode;
  AboutNode about;
  Bytes touched{0};  // in a period, each block once
  Bytes whole{0};    // room that the engine says blocks may have there; 0 where nothing is to move, and
  Bytes room{0};     // what of it they have

  bool fits() const { return whole <= Bytes(0) || room <= Bytes(0) || touched <= room; }
};

struct PeriodPlan {
  std::vector<Move> moves;  // by step; of one step those that leave first
  PeriodCost cost;
  // By node: the most bytes that are alive there at a time, or away from nodes that it backs. With so much of
  // room nothing would move.
  std::array<Bytes, kMaxNodes> wanted{};
  std::vector<std::string> said;  // a line for each node where anything moves
};

// `times`: that the program is a period of the user's.
PeriodPlan plan_period(const Program& program, int64_t times, const std::vector<PlannedNode>& nodes,
                       const Backing& backing = {});

}  // namespace innkeeper::plan
