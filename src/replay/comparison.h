// Compares one record on one GPU at shrinking budgets: with plans, and by the methods without plans.
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
  Status fits = {};  // Okay, or the failure of an operator; then the fields below are empty.
  StepCost planned = {};
  StepCost recompute = {};   // By a plan that may recompute.
  StepCost on_demand = {};   // Each block moves when an operator needs it; copies still overlap kernels.
  StepCost by_use = {};      // On demand, by the order of use alone (make_lru_policy).
  StepCost pager = {};       // By order of use, and each copy is waited for, as with unified memory.
  StepCost offline = {};     // Bytes that farthest next use moves, with the whole record known.
  Alternatives others = {};  // Methods in use today, on the same GPU.
  double roofline = 0;       // Seconds: the longest of the kernels and of those bytes in each direction.
  HostUse host = {};         // Host memory of the plan.
  Bytes least_in{0};         // Lower bound on any plan's bytes (plan/bound.h); 0 if there was no plan.
};

struct Comparison {
  Bytes peak{0};
  int64_t operators = 0;       // Operators of a step.
  double kernels = 0;          // Seconds of a step if all tensors fit.
  std::vector<Row> rows = {};  // In the order of the shares.
};

// Plays each share with `more` steps beyond the recorded ones. `times`: the plans' knowledge. Fails if
// with_more_steps() does. Requires: at least two more steps.
Result<Comparison> compare(const trace::AccessRecord& record, const cost::GpuModel& gpu,
                           const cost::LinkModel& link, std::span<const double> shares, int64_t more,
                           double host_bandwidth = kHostBandwidth, const KernelTimes& times = {});

// The steps of a program that varies, each as recorded: with plans and without.
struct Varied {
  double share = 1;  // Part of the peak.
  Bytes budget{0};
  Status fits = {};  // Okay, or the failure of an operator; then the fields below are empty.
  std::vector<StepCost> planned = {};
  std::vector<StepCost> on_demand = {};
};

struct VariedComparison {
  Bytes peak{0};
  std::vector<double> kernels = {};  // Seconds of each step if all tensors fit.
  std::vector<Varied> rows = {};     // In the order of the shares.
};

// Plays each share with the recorded steps. Fails if there are none.
Result<VariedComparison> compare_as_recorded(const trace::AccessRecord& record, const cost::GpuModel& gpu,
                                             const cost::LinkModel& link, std::span<const double> shares,
                                             const KernelTimes& times = {});

}  // namespace innkeeper::replay
