// The steps of a period that are short of free space, while gaps are taken that give some back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/profile.h"

namespace innkeeper::plan {

// A segment tree of the lacking bytes, and a Fenwick tree that counts the short steps. O(log steps) for each
// query; relieve() in addition O(log steps) for each step that it relieves, which happens once for each step.
class ShortSteps {
 public:
  // `lacking`: bytes that are lacking, by step.
  explicit ShortSteps(const std::vector<int64_t>& lacking);

  // `bytes` fewer are lacking from step `first` to before `last`, for good.
  void relieve(int64_t first, int64_t last, int64_t bytes);

  int64_t count(int64_t first, int64_t last) const { return before(last) - before(first); }
  // The first short step from a step on; the number of steps if there is none.
  int64_t next(int64_t step) const { return at(before(step)); }
  // The last short step before a step; -1: there is none.
  int64_t last_before(int64_t step) const {
    const int64_t number = before(step);
    return number > 0 ? at(number - 1) : -1;
  }

 private:
  int64_t before(int64_t step) const;  // Number of short steps before a step.
  int64_t at(int64_t number) const;    // The short step with `number` short steps before it.

  Profile spare_;  // Free space by step where it is short (below 0); elsewhere a number far below.
  std::vector<int64_t> sums_;  // Fenwick tree of the number of short steps.
};

}  // namespace innkeeper::plan
