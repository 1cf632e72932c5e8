// Which gaps are spent elsewhere, so that what is alive fits the room in every step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "plan/gaps.h"

namespace innkeeper::plan {

// Few bytes are not yet little time, and what a gap costs depends on which others are taken: a caller that
// wants the shortest period tries several weights (schedule.cc).
struct CoverWeights {
  // What is taken to cost a copy out: bytes that have just been written, or the first of a version to leave.
  enum class Out : uint8_t { fresh, first } out = Out::fresh;
  // What a block costs that leaves and never returns, of what it costs each way to leave and return: the link
  // that it takes is idle while others return.
  double one_way = 0.2;
  double patience = 1;  // times as long as its copies a gap must be, not to count for less
  double steps = 1;     // Exponent of the number of steps that a gap covers.
};

// Indices of gaps, in no order. Where blocks in use exceed the room by themselves, nothing helps there.
//
// To choose few bytes is a covering problem: in each step gaps of at least the excess. Where the excess is
// largest the gaps that cover most other steps of too little room for their copies are taken first; then
// those go again without which all is covered as well. (A greedy cover with reverse deletion, as in
// Bar-Noy, Bar-Yehuda, Freund, Naor, Schieber: A unified approach to approximating resource allocation and
// scheduling, JACM 48, 2001, whose guarantee is a factor of 4; Belady's rule knows no costs.)
std::vector<size_t> cover(const Uses& uses, Bytes room, const CoverWeights& weights = {});

}  // namespace innkeeper::plan
