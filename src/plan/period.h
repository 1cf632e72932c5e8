// Finds in a history that a program repeats itself: the operators and blocks of the last period are those
// of the period before (docs/design/plans.md). Nothing is asked of the program.
//
// An operator on a block that lasts, met before, gives a candidate: the distance. It counts once a whole
// period of it has been seen twice, operator by operator, block by block. A program of which nothing lasts,
// not even a weight, has no periods.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/history.h"

namespace innkeeper::plan {

class PeriodFinder {
 public:
  PeriodFinder() : seen_(kSeen) {}
  // The length of a period that the last operators have done twice, or 0. Looks at those that have ended
  // since it looked last: at each one's end, or, while the engine does not ask, once for many.
  int64_t look(const History& history);
  // The period that was found is of no use: another one, a longer one, is looked for.
  void refuse() { candidate_ = 0; }

 private:
  static constexpr size_t kSeen = size_t{1} << 16;
  static constexpr int64_t kFew = 16;   // operators that must repeat before a candidate is one
  static constexpr int64_t kSure = 32;  // Operators that a short period must have repeated: a loop may end.
  static constexpr int64_t kWorkAnOperator = 8;  // Comparisons allowed for each operator that ends.
  struct Seen {
    uint64_t key = 0;
    int64_t operation = -1;
  };

  int64_t look_at(const History& history, int64_t now);

  std::vector<Seen> seen_;  // Last operator by key.
  int64_t next_ = 0;        // operator
  int64_t candidate_ = 0;
  int64_t run_ = 0;  // operators up to now that repeat those a candidate before
  int64_t work_ = 0;
};

}  // namespace innkeeper::plan
