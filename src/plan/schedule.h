// The moves of one period with their issue points (docs/design/plans.md): a pure function of the program and
// of the free space that it has at a node.
//
// If the live blocks exceed the free space, cover.h chooses blocks that are elsewhere between two of their
// uses, or before they die. Such a block leaves right after its use, so that its copy ends before its space
// is needed. Its fetch is issued as soon as there is free space for it from then on (a "conservative"
// strategy in Cao, Felten, Karlin, Li: A study of integrated prefetching and caching strategies, SIGMETRICS
// 1995).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "plan/cover.h"
#include "plan/gaps.h"
#include "plan/program.h"

namespace innkeeper::plan {

struct PlannedMove {
  int64_t after = 0;     // Step of the period after which the move is issued.
  bool arrives = false;  // A fetch; otherwise the block leaves the node.
  NodeId node = kNoNode;
  Slot slot;  // Name in the period in which the move starts.
  Bytes size{0};
  bool written = false;   // Written in the period: may have to be copied out when it leaves.
  bool discards = false;  // Of a block that leaves: discarded, and recomputed at its next use (recompute.h).
  bool stored = false;    // The node backs others (backing.h).
};

// An interval between two uses during which the schedule keeps a block away. Steps count as those of a gap.
struct Absence {
  Slot slot;  // Name in the first period that makes or uses the block.
  Bytes size{0};
  int64_t begin = 0;  // First step in which the block is away.
  int64_t back = 0;   // Step after which the fetch is issued.
  int64_t use = 0;    // Step that uses the block again; the step of its death if it never returns.
  bool returns = true;
  size_t version = 0;    // Version of its bytes (gaps.h).
  bool written = false;  // A period writes this version.
  bool last = false;     // Last absence of this version.
};

struct Schedule {
  std::vector<PlannedMove> moves;  // By step; within a step, evictions first.
  std::vector<Absence> away;       // One for each eviction; a discard has none.
  Bytes arriving{0};               // Bytes per period.
  Bytes leaving{0};
  double time = 0;  // Time of a period, in bytes that kernels touch (period_time.h).
};

// The fastest of the schedules that the weights give; by default, of weights that suit one program or
// another. `space`: bytes at the node that the program's blocks may have together.
Schedule make_schedule(const Uses& uses, Bytes space);
Schedule make_schedule(const Uses& uses, Bytes space, std::span<const CoverWeights> tried);

}  // namespace innkeeper::plan
