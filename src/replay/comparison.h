// One record at one card, with less and less room: what plans make of it, beside what it costs without.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "replay/alternatives.h"
#include "replay/player.h"
#include "trace/record.h"

namespace innkeeper::replay {

// Averages of the last steps, in which plans have settled.
struct Row {
  double share = 1;  // Part of the peak.
  Bytes budget{0};
  Status fits = {};  // else an operator did not, and nothing below is there
  StepCost planned = {};
  StepCost recompute = {};   // By a plan that may recompute.
  StepCost on_demand = {};   // each block moves when an operator needs it; copies beside kernels all the same
  StepCost by_use = {};      // On demand, by the order of use alone (make_lru_policy).
  StepCost pager = {};       // By order of use, and each copy is waited for, as with unified memory.
  StepCost offline = {};     // the bytes that farthest next use moves, with the whole record known
  Alternatives others = {};  // what people use today, on the same card
  double roofline = 0;       // seconds: the longest of the kernels and of those bytes in each direction
  HostUse host = {};         // Host memory of the plan.
  Bytes least_in{0};         // no plan has less (plan/bound.h); 0 where nothing was planned
};

struct Comparison {
  Bytes peak{0};
  int64_t operators = 0;       // Operators of a step.
  double kernels = 0;          // seconds of a step, with room for all
  std::vector<Row> rows = {};  // In the order of the shares.
};

// Plays each share with `more` steps than were recorded. `times`: of plans. Fails where with_more_steps()
// does. Requires: two steps more.
Result<Comparison> compare(const trace::AccessRecord& record, const cost::GpuModel& card,
                           const cost::LinkModel& link, std::span<const double> shares, int64_t more,
                           double host_bandwidth = kHostBandwidth, const KernelTimes& times = {});

// The steps of a program that varies, each as it was recorded: with plans and without.
struct Varied {
  double share = 1;  // Part of the peak.
  Bytes budget{0};
  Status fits = {};  // else an operator did not, and nothing below is there
  std::vector<StepCost> planned = {};
  std::vector<StepCost> on_demand = {};
};

struct VariedComparison {
  Bytes peak{0};
  std::vector<double> kernels = {};  // seconds of each step, with room for all
  std::vector<Varied> rows = {};     // In the order of the shares.
};

// Plays each share with the steps that were recorded. Fails where none was.
Result<VariedComparison> compare_as_recorded(const trace::AccessRecord& record, const cost::GpuModel& card,
                                             const cost::LinkModel& link, std::span<const double> shares,
                                             const KernelTimes& times = {});

}  // namespace innkeeper::replay
