// What of a period may be computed again instead of copied out and back (docs/design/recompute.md): a result
// that is not used for a while, and whose operator gives the same bits once more from what is still there
// when it is used again.
//
// The program that does so is a program as others: a block that is dropped dies there, and another one is
// born where it is used again, by an operator that touches what the first one touched. So schedules are made,
// and their periods are timed, as ever; and the fastest says what is computed again.
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

// One gap of a block, the longest; none is made of another, nor is any whose operator takes longer than a
// copy out and back. `slower`: its link than its memory (speed.h).
std::vector<RecomputedBlock> may_be_recomputed(const Program& program, NodeId node, double slower = kSlower);

// The program with these dropped and made again. A slot beyond the births of the first is the second life of
// what was dropped, in the order of `recomputed`.
Program with_recomputed(const Program& program, std::span<const RecomputedBlock> recomputed);

// The fastest schedule of a program with these uses at a node: with nothing computed again, with all that may
// be and covers a step of too little room, or with a part of that.
Schedule schedule_with_recompute(const Program& program, const Uses& uses, Bytes room);

}  // namespace innkeeper::plan
