// The steps of a period in which room is short, while gaps are taken that give some back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/profile.h"

namespace innkeeper::plan {

// Each function takes the logarithm of their number; what was short once is relieved once.
class ShortSteps {
 public:
  // By step, how much is lacking.
  explicit ShortSteps(const std::vector<int64_t>& lacking);

  // So much less lacks in a range of steps, first to behind last, for good.
  void relieve(int64_t first, int64_t last, int64_t bytes);

  int64_t count(int64_t first, int64_t last) const { return before(last) - before(first); }
  // The first one from a step on; the number of steps where there is none.
  int64_t next(int64_t step) const { return at(before(step)); }
  // The last one before a step; -1 where there is none.
  int64_t last_before(int64_t step) const {
    const int64_t number = before(step);
    return number > 0 ? at(number - 1) : -1;
  }

 private:
  int64_t before(int64_t step) const;  // how many
  int64_t at(int64_t number) const;    // the one with so many before it

  Profile spare_;  // Free space by step where it is short (below 0); elsewhere a number far below.
  std::vector<int64_t> sums_;  // Fenwick's: of those that are short
};

}  // namespace innkeeper::plan
