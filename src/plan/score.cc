#include "plan/score.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"

namespace innkeeper::plan {

void Score::count(const Count& now) {
  now_ = now;
  if (now.operators % kEvery == 0 && !began_) {
    if (marks_.size() < kMarks) marks_.emplace_back();
    marks_[next_mark_] = now;
    next_mark_ = (next_mark_ + 1) % kMarks;
  }
  if (now.operators - last_.operators >= std::max(length_ / kLooks, kFewest / kLooks)) look();
}

void Score::begin(int64_t operators) {
  operators = std::max(operators, kFewest);
  if (began_) {
    const int64_t length = std::clamp(operators, length_ / 2, 2 * length_);
    const double times = static_cast<double>(length) / static_cast<double>(length_);
    round_time_ *= times;
    round_bytes_ *= times;
    length_ = length;
    return;
  }
  length_ = operators;
  began_ = true;
  const Count* earliest = &now_;
  for (const Count& mark : marks_)
    if (mark.operators >= now_.operators - length_ && mark.operators < earliest->operators) earliest = &mark;
  const double modelled = now_.on_demand - earliest->on_demand;
  if (earliest->clock > 0 && modelled > 0) ratio_ = std::max(1.0, (now_.clock - earliest->clock) / modelled);
  round_time_ = ratio_ * modelled;
  round_bytes_ = static_cast<double>((now_.by_model - earliest->by_model).count());
  last_ = now_;
  marks_ = {};
}

void Score::look() {
  const Count before = std::exchange(last_, now_);
  if (!began_) return;
  const bool timed = before.clock > 0 && now_.clock > before.clock && now_.on_demand > before.on_demand;
  const double taken = timed ? now_.clock - before.clock : 0;
  const double modelled = timed ? now_.on_demand - before.on_demand : 0;
  const double expected = ratio_ * modelled;
  const auto arrived = static_cast<double>((now_.arrived - before.arrived).count());
  const auto by_model = static_cast<double>((now_.by_model - before.by_model).count());
  const double part = static_cast<double>(now_.operators - before.operators) / static_cast<double>(length_);
  round_time_ += expected / 4 - part * round_time_ / 4;
  round_bytes_ += by_model / 4 - part * round_bytes_ / 4;
  all_time_ += expected;
  all_bytes_ += by_model;
  if (suspended_ && !settled_) {
    const int64_t since = before.operators - suspended_at_;
    settled_ = since >= length_ && (taken <= kSettled * expected || since >= kPause * length_);
  }
  if (settled_) {
    if (modelled > 0)
      ratio_ += (std::clamp(taken / modelled, ratio_ / kSettled, ratio_ * kSettled) - ratio_) * part / 4;
    if (may_resume()) {
      log(LogLevel::info, "planned: again");
      suspended_ = settled_ = false;
      least_lost_ = began_lost_ = lost_;
      least_more_ = more_;
      recent_time_ = recent_expected_ = 0;
    }
    return;
  }
  // What plans have left where it is costs also while they are suspended.
  lost_ += taken - expected;
  more_ += arrived - by_model;
  if (suspended_) return;
  recent_time_ += taken - part * recent_time_ / 8;
  recent_expected_ += expected - part * recent_expected_ / 8;
  least_lost_ = std::min(least_lost_, lost_);
  if (lost_ < began_lost_ - round_time_) suspensions_ = 0;
  least_more_ = std::min(least_more_, more_);
  const double most = suspensions_ == 0 ? kMostAtFirst : kMostLost;
  const bool slower = lost_ - least_lost_ > most * round_time_;
  const bool saves = timed && recent_time_ <= kSaves * recent_expected_;
  const bool more = !saves && more_ - least_more_ > kMostMore * round_bytes_;
  if ((timed && slower) || more) suspend();
}

void Score::suspend() {
  if (log_enabled(LogLevel::info))
    log(LogLevel::info, "planned: no more for now, since that has cost " +
                            std::to_string((lost_ - least_lost_) * 1e3) + " ms and " +
                            to_string(Bytes(static_cast<int64_t>(more_ - least_more_))) +
                            " more than moving on demand");
  suspended_ = true;
  lost_ = std::max(lost_, lost_ - least_lost_);  // what was saved before does not pay for another loss
  more_ = std::max(more_, more_ - least_more_);
  suspended_at_ = now_.operators;
  suspensions_ = std::min(suspensions_ + 1, kMostDoubled);
}

bool Score::may_resume() const {
  const int64_t pause = (kPause << (suspensions_ - 1)) * length_;
  return now_.operators >= suspended_at_ + pause && lost_ + kMostLost * round_time_ <= kShare * all_time_ &&
         more_ + kMostMore * round_bytes_ <= kMoreShare * all_bytes_;
}

}  // namespace innkeeper::plan
