// Which gaps are spent elsewhere, so that what is alive fits the room in every step.
#pragma once

#include <vector>

#include "base/types.h"
#include "plan/gaps.h"

namespace innkeeper::plan {

// Indices of gaps, in no order. Where blocks in use exceed the room by themselves, nothing helps there.
//
// To choose few bytes is a covering problem: in each step gaps of at least the excess. Where the excess is
// largest the gaps that cover most other steps of too little room for their copies are taken first; then
// those go again without which all is covered as well. (A greedy cover with reverse deletion, as in
// Bar-Noy, Bar-Yehuda, Freund, Naor, Schieber: A unified approach to approximating resource allocation and
// scheduling, JACM 48, 2001, whose guarantee is a factor of 4; Belady's rule knows no costs.)
std::vector<size_t> cover(const Uses& uses, Bytes room);

}  // namespace innkeeper::plan
