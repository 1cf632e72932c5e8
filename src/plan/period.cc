#include "plan/period.h"

#include <algorithm>

namespace innkeeper::plan {

int64_t PeriodFinder::look(const History& history) {
  int64_t found = 0;
  for (next_ = std::max(next_, history.begin()); next_ < history.end(); ++next_)
    found = look_at(history, next_);
  return found;
}

// One step of the algorithm: extends the candidate by the operator `now`, or verifies a new one.
int64_t PeriodFinder::look_at(const History& history, int64_t now) {
  const uint64_t key = history.at(now).key;
  Seen& seen = seen_[key % kSeen];
  const Seen before = seen;
  seen = {key, now};
  work_ = std::min(work_ + kWorkAnOperator, int64_t{4} * static_cast<int64_t>(History::kKept));

  if (candidate_ != 0 && now - candidate_ >= history.begin() && history.repeats(now, now - candidate_))
    return ++run_ >= std::max(candidate_, kSure) ? candidate_ : 0;
  candidate_ = 0;
  if (before.operation < 0 || before.key != key) return 0;
  const int64_t distance = now - before.operation;
  const auto repeats = [&](int64_t back) {
    const int64_t earlier = now - distance - back;
    return earlier >= history.begin() && history.repeats(now - back, earlier);
  };
  int64_t run = 0;
  for (; run < std::max(distance, kSure) && work_ > 0 && repeats(run); ++run) --work_;
  if (run < std::min(distance, kFew)) return 0;
  candidate_ = distance;
  run_ = run;
  return run_ >= std::max(candidate_, kSure) ? candidate_ : 0;
}

void PeriodSearch::refuse(const History& history, int64_t length) {
  refusals_ = length == refused_ ? std::min(refusals_ + 1, kMostDoublings) : 0;
  refused_ = length;
  paused_until_ = history.end() + (std::max(length, kShortest) << refusals_);
  finder_.refuse();
}

void PeriodSearch::evicted_without_a_period(const History& history) {
  paused_until_ = std::min(paused_until_, history.end() + std::max(refused_, kShortest));
}

}  // namespace innkeeper::plan
