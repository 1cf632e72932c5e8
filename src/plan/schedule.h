// What is to move in a period, and when (docs/design/plans.md): a pure function of the program and
// of the room that it has at a node.
//
// Where the blocks that are alive exceed the room, some are elsewhere between two of their uses, or before
// they die: which, cover.h says. Such a block leaves right after its use, so that its bytes are out when the
// room is wanted; and it starts back as soon as there is room for it from then on, so that it is there when
// it is used (Cao, Felten, Karlin, Li: A study of integrated prefetching and caching strategies, SIGMETRICS
// 1995, call the like of it "conservative").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "plan/cover.h"
#include "plan/gaps.h"
#include "plan/program.h"

namespace innkeeper::plan {

struct Move {
  int64_t after = 0;     // this step of the period
  bool arrives = false;  // else it leaves
  NodeId node = kNoNode;
  Slot slot;  // in the period in which the move starts
  Bytes size{0};
  bool written = false;  // in the period: where it leaves, it may have to be copied out
  bool drops = false;    // where it leaves: its bytes go, and are computed again (recompute.h)
  bool stored = false;   // at a node that backs others (backing.h)
};

// While a block is elsewhere. Steps count as those of a gap.
struct Away {
  Slot slot;  // as the first period names it that makes or uses it
  Bytes size{0};
  int64_t begin = 0;  // the first step in which it is not there
  int64_t back = 0;   // behind this step it starts back, to be
  int64_t use = 0;    // used in this one; or, if it does not return, it is dead behind both
  bool returns = true;
  size_t version = 0;    // of its bytes (gaps.h),
  bool written = false;  // which a period writes,
  bool last = false;     // and which are not away again
};

struct Schedule {
  std::vector<Move> moves;  // by step; of one step those that leave first
  std::vector<Away> away;   // one for each move that leaves, but those that drop
  Bytes arriving{0};        // in a period
  Bytes leaving{0};
  double time = 0;  // of a period, in bytes that kernels touch (period_time.h)
};

// Room: bytes at the node that the program's blocks may have between them. The best of those that are made by
// each of the weights; by default of some that suit one program or another.
Schedule make_schedule(const Uses& uses, Bytes room);
Schedule make_schedule(const Uses& uses, Bytes room, std::span<const Weights> tried);

}  // namespace innkeeper::plan
