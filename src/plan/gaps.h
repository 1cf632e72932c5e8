// The uses of a period's blocks at a node, and the gaps between uses, in which a block may be elsewhere.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/types.h"
#include "plan/program.h"
#include "plan/speed.h"

namespace innkeeper::plan {

// Steps of a period count from 0. The steps of a block that outlives its period continue through the next
// ones.
struct Gap {
  size_t block = 0;     // Index in Uses::blocks.
  int64_t begin = 0;    // First step without a use.
  int64_t end = 0;      // Step of the next use; one past the last step of its life if it is not used again.
  bool returns = true;  // The block is used again.
  bool fresh = true;    // The operator before the gap made or wrote the block.
  // Version of the bytes, from one write to the next. A version is copied out once, when it first leaves.
  size_t version = 0;
};

struct Uses {
  struct Life {
    Slot slot;  // Name in the first period that makes or uses the block.
    int64_t size = 0;
    bool stays = false;
    bool written = false;  // Written in the period.
  };
  NodeId node = kNoNode;
  Speed speed;
  int64_t length = 0;  // Steps of a period.
  int64_t births = 0;  // Blocks that a period makes.
  std::vector<Life> blocks;
  std::vector<Gap> gaps;  // Gaps of one version in the order of time.
  // By version: written in the period; otherwise another copy exists at all times.
  std::vector<bool> written;
  // Running sum by step of the bytes that stand for kernel times; one entry more than steps.
  std::vector<int64_t> touched;
  std::vector<double> host;    // Time of the host by step, in such bytes (two_clocks.h); empty: unknown.
  std::vector<int64_t> alive;  // Bytes of live blocks by step.
  std::vector<int64_t> working_set;  // Bytes by step of live blocks that are used now or later.
};

Uses uses_at(const Program& program, NodeId node, const Speed& speed = {});

// Calls `range(first, last)` for the steps of one period that `begin` to `end` cover, as often as they do.
template <typename Range>
void each_range(int64_t begin, int64_t end, int64_t length, const Range& range) {
  for (; begin + length <= end; begin += length) range(int64_t{0}, length);
  if (begin >= end) return;
  const int64_t first = begin % length;
  const int64_t last = first + (end - begin);
  range(first, last < length ? last : length);
  if (last > length) range(int64_t{0}, last - length);
}

// A difference array over the steps of a period: adds to the steps from `begin` to before `end` in O(1).
// sum_up() then makes the numbers of the differences.
inline void add_difference(std::vector<int64_t>& steps, int64_t begin, int64_t end, int64_t number) {
  const auto length = static_cast<int64_t>(steps.size());
  each_range(begin, end, length, [&](int64_t first, int64_t last) {
    steps[static_cast<size_t>(first)] += number;
    if (last < length) steps[static_cast<size_t>(last)] -= number;
  });
}
inline void sum_up(std::vector<int64_t>& steps) {
  std::partial_sum(steps.begin(), steps.end(), steps.begin());
}

}  // namespace innkeeper::plan
