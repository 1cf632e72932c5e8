#include "plan/score.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"

namespace innkeeper::plan {

void Score::count(const Count& now) {
  now_ = now;
  if (now.operators % kMarkEvery == 0 && !started_) {
    if (marks_.size() < kMarks) marks_.emplace_back();
    marks_[next_mark_] = now;
    next_mark_ = (next_mark_ + 1) % kMarks;
  }
  if (now.operators - last_.operators >= std::max(length_ / kEvaluations, kShortest / kEvaluations))
    evaluate();
}

void Score::start(int64_t operators) {
  operators = std::max(operators, kShortest);
  if (started_) {
    const int64_t length = std::clamp(operators, length_ / 2, 2 * length_);
    const double times = static_cast<double>(length) / static_cast<double>(length_);
    period_time_ *= times;
    period_bytes_ *= times;
    length_ = length;
    return;
  }
  length_ = operators;
  started_ = true;
  const Count* earliest = &now_;
  for (const Count& mark : marks_)
    if (mark.operators >= now_.operators - length_ && mark.operators < earliest->operators) earliest = &mark;
  const double modelled = now_.model_clock - earliest->model_clock;
  if (earliest->clock > 0 && modelled > 0) ratio_ = std::max(1.0, (now_.clock - earliest->clock) / modelled);
  period_time_ = ratio_ * modelled;
  period_bytes_ = static_cast<double>((now_.model_arrived - earliest->model_arrived).count());
  last_ = now_;
  marks_ = {};
}

void Score::evaluate() {
  const Count before = std::exchange(last_, now_);
  if (!started_) return;
  const bool timed = before.clock > 0 && now_.clock > before.clock && now_.model_clock > before.model_clock;
  const double taken = timed ? now_.clock - before.clock : 0;
  const double modelled = timed ? now_.model_clock - before.model_clock : 0;
  const double expected = ratio_ * modelled;
  const auto arrived = static_cast<double>((now_.arrived - before.arrived).count());
  const auto model_bytes = static_cast<double>((now_.model_arrived - before.model_arrived).count());
  const double part = static_cast<double>(now_.operators - before.operators) / static_cast<double>(length_);
  period_time_ += expected / 4 - part * period_time_ / 4;
  period_bytes_ += model_bytes / 4 - part * period_bytes_ / 4;
  all_time_ += expected;
  all_bytes_ += model_bytes;
  if (suspended_ && !settled_) {
    const int64_t since = before.operators - suspended_at_;
    settled_ = since >= length_ && (taken <= kSettled * expected || since >= kPause * length_);
  }
  if (settled_) {
    if (modelled > 0)
      ratio_ += (std::clamp(taken / modelled, ratio_ / kSettled, ratio_ * kSettled) - ratio_) * part / 4;
    if (may_resume()) {
      log(LogLevel::info, "planned: resumed");
      suspended_ = settled_ = false;
      least_lost_ = resumed_lost_ = lost_;
      least_more_ = more_;
      recent_time_ = recent_model_ = 0;
    }
    return;
  }
  // The effects of plans cost time after they are suspended, too.
  lost_ += taken - expected;
  more_ += arrived - model_bytes;
  if (suspended_) return;
  recent_time_ += taken - part * recent_time_ / 8;
  recent_model_ += expected - part * recent_model_ / 8;
  least_lost_ = std::min(least_lost_, lost_);
  if (lost_ < resumed_lost_ - period_time_) suspensions_ = 0;
  least_more_ = std::min(least_more_, more_);
  const double most = suspensions_ == 0 ? kFirstLossLimit : kLossLimit;
  const bool slower = lost_ - least_lost_ > most * period_time_;
  const bool saves = timed && recent_time_ <= kSaves * recent_model_;
  const bool more = !saves && more_ - least_more_ > kByteLimit * period_bytes_;
  if ((timed && slower) || more) suspend();
}

void Score::suspend() {
  if (log_enabled(LogLevel::info))
    log(LogLevel::info, "planned: suspended, since plans have cost " +
                            std::to_string((lost_ - least_lost_) * 1e3) + " ms and " +
                            to_string(Bytes(static_cast<int64_t>(more_ - least_more_))) +
                            " more than movement on demand");
  suspended_ = true;
  lost_ = std::max(lost_, lost_ - least_lost_);  // Earlier savings do not pay for another loss.
  more_ = std::max(more_, more_ - least_more_);
  suspended_at_ = now_.operators;
  suspensions_ = std::min(suspensions_ + 1, kMostDoublings);
}

bool Score::may_resume() const {
  const int64_t pause = (kPause << (suspensions_ - 1)) * length_;
  return now_.operators >= suspended_at_ + pause &&
         lost_ + kLossLimit * period_time_ <= kLossShare * all_time_ &&
         more_ + kByteLimit * period_bytes_ <= kByteShare * all_bytes_;
}

}  // namespace innkeeper::plan
