// When a period's blocks are used at a node, and the gaps between uses, in which a block may be elsewhere.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/types.h"
#include "plan/program.h"
#include "plan/speed.h"

namespace innkeeper::plan {

// Steps of a period count from 0. What a period has made may live on: its steps go on counting through the
// periods after it.
struct Gap {
  size_t block = 0;     // in Uses::blocks
  int64_t begin = 0;    // the first step in which the block is not used, and
  int64_t end = 0;      // the one in which it is used again; or, if it is not, behind its last one
  bool returns = true;  // it is used again
  bool fresh = true;    // a result's, or what the operator before the gap has written
  // Whose bytes, between one write and the next: they are copied out once, when they leave first.
  size_t version = 0;
};

struct Uses {
  struct Life {
    Slot slot;  // as the first period names it that makes or uses it
    int64_t size = 0;
    bool stays = false;
    bool written = false;  // in the period
  };
  NodeId node = kNoNode;
  Speed speed;
  int64_t length = 0;  // steps
  int64_t births = 0;  // of a period
  std::vector<Life> blocks;
  std::vector<Gap> gaps;         // of one version one after the other, in time
  std::vector<bool> written;     // by version: in the period; else there is a copy elsewhere at all times
  std::vector<int64_t> touched;  // bytes, before each step and, at last, in all: how long kernels take
  std::vector<double> host;      // bytes, by step: how long the host takes (two_clocks.h); or empty
  std::vector<int64_t> alive;    // bytes in each step
  std::vector<int64_t> wanted;   // of those that are in use, or will be
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

// Numbers by step of a period, as differences from one step to the next: adds to the steps that `begin` to
// `end` cover, and makes the numbers of them at last.
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
