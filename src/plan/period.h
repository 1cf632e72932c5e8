// Finds the period of a program in its history: a distance after which operators and blocks repeat
// (docs/design/plans.md). Needs no hint of the program.
//
// Algorithm: candidate distance, then verification. A hash table has the last operator of each key; the
// distance from an operator to it is a candidate. Verification compares the operators before the two,
// backwards, block by block. If at least kFew agree the candidate stays, and each later operator extends the
// run by one comparison, or ends it. A candidate is a period once the run is as long as the candidate. Only
// operators on lasting blocks meet their key again, so a program without any, not even a weight, has no
// period.
//
// Cost: O(1) amortised comparisons of operators for each operator. Backward verification spends a budget to
// which each operator adds kWorkAnOperator comparisons. If the budget is used up verification ends early, and
// later operators complete the run. Memory: O(kSeen).
//
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/history.h"

namespace innkeeper::plan {

class PeriodFinder {
 public:
  PeriodFinder() : seen_(kSeen) {}
  // The length, in operators, of a period that the last operators have done twice; 0 if there is none. Looks
  // at the operators that have ended since the last call: one for each call while no program is followed.
  int64_t look(const History& history);
  // The period that was found is of no use: another one, a longer one, is looked for.
  void refuse() { candidate_ = 0; }

 private:
  // Entries of the table of operators by key.
  static constexpr size_t kSeen = size_t{1} << 16;
  // Operators that must repeat before a distance is a candidate.
  static constexpr int64_t kFew = 16;
  // Operators that a short period must have repeated: a loop may end.
  static constexpr int64_t kSure = 32;
  // Comparisons allowed for each operator that ends.
  static constexpr int64_t kWorkAnOperator = 8;
  struct Seen {
    uint64_t key = 0;
    int64_t operation = -1;
  };

  int64_t look_at(const History& history, int64_t now);

  std::vector<Seen> seen_;  // Last operator by key, at the key modulo kSeen; the newest replaces the others.
  int64_t next_ = 0;        // First operator that was not looked at.
  int64_t candidate_ = 0;   // Candidate distance; 0: none.
  int64_t run_ = 0;         // Operators up to now that repeat those a candidate distance before.
  int64_t work_ = 0;        // Budget of comparisons.
};

// Looks for a period until the planner has one, and pauses after a period that is of no use.
class PeriodSearch {
 public:
  // As PeriodFinder::look(), and 0 during a pause.
  int64_t look(const History& history) {
    const int64_t length = finder_.look(history);
    return history.end() < paused_until_ ? 0 : length;
  }
  // A period of this length is none, or nothing of it moves. The search pauses for its length, and for twice
  // as long each further time that this length is refused.
  void refuse(const History& history, int64_t length);
  // The engine evicted while no period is known: a pause ends after the refused length at the latest.
  void evicted_without_a_period(const History& history);

 private:
  // Shortest pause, operators.
  static constexpr int64_t kShortest = 256;
  static constexpr int kMostDoublings = 16;

  PeriodFinder finder_;
  int64_t paused_until_ = 0;  // Operator from which on periods are looked for again.
  int64_t refused_ = 0;       // Length of the period that was refused last, operators.
  int refusals_ = 0;          // Refusals of that length, one after another, after the first.
};

}  // namespace innkeeper::plan
