// Chooses blocks of a period that are discarded and recomputed instead of copied out and back
// (docs/design/recompute.md). A candidate is a result that is not used for a while, if its operator gives the
// same bits again from inputs that are still there at its next use.
//
// A program with recomputed blocks is an ordinary program: the discarded block dies, and another one is born
// at its next use, by an operator that touches the first one's operands. So the usual schedules are made of
// it and timed, and the fastest decides which blocks are recomputed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/program.h"
#include "plan/schedule.h"

namespace innkeeper::plan {

struct RecomputedBlock {
  Slot slot;
  int64_t born = 0;   // Step that makes the block.
  int64_t after = 0;  // Step behind which it is discarded.
  int64_t use = 0;    // Step that uses it, recomputed.
  Bytes size{0};
};

// The candidates, each over its longest gap. None is computed from another one, and no operator takes longer
// than a copy out and back. `slower`: how much slower the node's link is than its memory (speed.h).
std::vector<RecomputedBlock> may_be_recomputed(const Program& program, NodeId node, double slower = kSlower);

// The program with these blocks discarded and recomputed. Slots beyond the births of `program` are recomputed
// blocks, in the order of `recomputed`.
Program with_recomputed(const Program& program, std::span<const RecomputedBlock> recomputed);

// The fastest schedule of a program with these uses at a node: without recompute, with all candidates whose
// gap covers a step that is short of free space, or with a part of them.
Schedule schedule_with_recompute(const Program& program, const Uses& uses, Bytes space);

}  // namespace innkeeper::plan
