// Compares the cost of a program's plans with that of on-demand movement (on_demand.h), by the node's clock
// and by the bytes that arrive there. The planner suspends plans that cost more, and resumes them ever more
// rarely.
//
// The score is the sum of the time that plans lost, less the time that they saved. A plan may lose at first:
// its first period begins with other blocks at the node than the schedule assumes. A program that varies
// loses in one period and saves in the next. So plans are suspended only when the sum has risen by a large
// part of a period's time above its lowest value. They are resumed when another such loss would be a small
// part of all time since the first plan.
//
// The model's seconds are not the node's. The score measures their ratio while nothing is planned. Where the
// clock is not known, only bytes count.
//
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

namespace innkeeper::plan {

class Score {
 public:
  // Totals since the planner was created.
  struct Count {
    int64_t operators = 0;
    double clock = 0;        // The node's clock, seconds; 0 where it is not known.
    Bytes arrived{0};        // Bytes of the program's blocks that arrived at the node.
    double model_clock = 0;  // The on-demand model's clock, seconds.
    Bytes model_arrived{0};  // Bytes that arrived in the on-demand model.
  };

  // The planner calls this after each operator. Amortised O(1).
  void count(const Count& now);
  // A schedule for a period of `operators` operators takes effect.
  void start(int64_t operators);

  bool suspended() const { return suspended_; }

 private:
  // Operators between two marks, from which the first ratio is measured.
  static constexpr int64_t kMarkEvery = 32;
  // Number of marks kept.
  static constexpr size_t kMarks = 1024;
  // Shortest length of a period, operators.
  static constexpr int64_t kShortest = 256;
  // Evaluations in a period.
  static constexpr int64_t kEvaluations = 4;
  // Loss that suspends plans for the first time, in times of a period.
  static constexpr double kFirstLossLimit = 1;
  // Loss that suspends plans later, in times of a period.
  static constexpr double kLossLimit = 0.5;
  // Additional bytes that suspend plans, in bytes that arrive in a period on demand.
  static constexpr double kByteLimit = 1.5;
  // Planned over on-demand time up to which additional bytes do not suspend plans.
  static constexpr double kSaves = 0.97;
  // Part of all time that may be lost when plans are resumed, their next loss included.
  static constexpr double kLossShare = 0.015;
  // Part of all bytes that may be moved additionally when plans are resumed, their next excess included.
  static constexpr double kByteShare = 0.08;
  // Actual over on-demand time below which the effects of suspended plans are over.
  static constexpr double kSettled = 1.05;
  // Length of the first suspension, periods. Each further one takes at least twice as long.
  static constexpr int64_t kPause = 4;
  static constexpr int kMostDoublings = 10;

  void evaluate();
  void suspend();
  bool may_resume() const;

  Count now_;
  Count last_;                // At the last evaluation.
  std::vector<Count> marks_;  // A ring; empty once plans have started.
  size_t next_mark_ = 0;
  int64_t length_ = kShortest;  // Operators of a period.
  double ratio_ = 1;            // Seconds of the node's clock for one of the model's, on demand.
  double period_time_ = 0;      // Moving average of a period's seconds on demand.
  double period_bytes_ = 0;     // Moving average of the bytes that arrive in a period on demand.

  double lost_ = 0;          // Seconds lost by plans; negative where they saved time.
  double least_lost_ = 0;    // Lowest value of lost_ since plans started or resumed.
  double resumed_lost_ = 0;  // Value of lost_ when plans started or resumed.
  double more_ = 0;          // Bytes moved additionally by plans; negative where they saved bytes.
  double least_more_ = 0;    // Lowest value of more_ since plans started or resumed.
  double all_time_ = 0;      // Seconds on demand since the first plan.
  double all_bytes_ = 0;     // Bytes on demand since the first plan.
  double recent_time_ = 0;   // Seconds of the last planned periods; older ones count less.
  double recent_model_ = 0;  // The same periods' seconds on demand.

  int64_t suspended_at_ = 0;  // Operators counted when plans were suspended last.
  int suspensions_ = 0;       // Suspensions since plans last saved a period's time.
  bool started_ = false;
  bool suspended_ = false;
  bool settled_ = false;  // The effects of the suspended plans are over.
};

}  // namespace innkeeper::plan
