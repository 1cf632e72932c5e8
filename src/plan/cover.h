// Chooses the gaps that blocks spend elsewhere, so that the live bytes fit the free space in every step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "plan/gaps.h"

namespace innkeeper::plan {

// Weights of the score by which gaps are chosen. The cost of a gap depends on the other chosen gaps, and the
// fewest bytes need not take the least time, so schedule.cc tries several weights.
struct CoverWeights {
  // Gaps that count a copy out: those after a write, or the first chosen gap of a version.
  enum class Out : uint8_t { fresh, first } out = Out::fresh;
  // Cost of a block that never returns, in copies of one that does. Its link is idle while others return.
  double one_way = 0.2;
  double patience = 1;  // A gap shorter than this many times its copies has a lower score.
  double steps = 1;     // Exponent of the number of steps that a gap covers.
};

// Returns indices of gaps, in no order. Steps whose blocks in use exceed the free space stay short.
//
// To choose few bytes is a covering problem: the chosen gaps of each step have at least its excess.
// Algorithm: greedy cover with reverse deletion. At the step of the largest excess, the gaps that cover the
// most short steps for their copies are chosen first; gaps that turn out to be unnecessary are given back at
// the end (Bar-Noy, Bar-Yehuda, Freund, Naor, Schieber: A unified approach to approximating resource
// allocation and scheduling, JACM 48, 2001, whose variant guarantees a factor of 4). Belady's rule knows no
// costs.
std::vector<size_t> cover(const Uses& uses, Bytes space, const CoverWeights& weights = {});

}  // namespace innkeeper::plan
