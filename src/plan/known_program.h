// A program whose period the planner has found, with its plan.
//
// At first it has no plan. adopt() gives it one, and later another one for other free space. A plan may be
// made on a background thread meanwhile; the program keeps the plan that it has until then.
//
// Thread safety: none; the planner's owner guards it. The background job shares no state with it but the plan
// in progress, and may outlive it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"
#include "plan/free_space_estimate.h"
#include "plan/period_plan.h"
#include "plan/program.h"
#include "plan/working_set.h"

namespace innkeeper::plan {

class KnownProgram {
 public:
  // Several consecutive periods are planned as one if the period is short.
  explicit KnownProgram(Program period);

  const Program& program() const { return *program_; }
  // For a background job, which may outlive this object.
  const std::shared_ptr<const Program>& shared_program() const { return program_; }
  // Bytes that the program touches at a node; each block once.
  Bytes touched(NodeId node) const { return touched_[index_of(node)]; }
  // Before there is a plan, all bytes that the program touches.
  const WorkingSet::ByNode& working_set() const { return working_set_; }
  FreeSpaceEstimate& free_space() { return free_space_; }

  bool is_planned() const { return planned_; }
  // Empty until there is a plan.
  const std::vector<PlannedMove>& moves() const { return moves_; }
  // Whether the plan discards a result of the step. Requires: is_planned().
  bool makes_discarded(int64_t step) const { return makes_discarded_[static_cast<size_t>(step)]; }
  const PeriodCost& cost() const { return cost_; }
  // Ensures: is_planned().
  void adopt(PeriodPlan plan);

  bool is_being_planned() const { return in_progress_ != nullptr; }
  // Has `run` call `make` on another thread. Requires: !is_being_planned().
  void start_plan(const std::function<void(std::function<void()>)>& run, std::function<PeriodPlan()> make);
  // The plan that was started, once, when it is done.
  std::optional<PeriodPlan> take_finished_plan();
  // The plan that was started is ignored.
  void cancel_plan() { in_progress_ = nullptr; }

 private:
  struct PlanInProgress {
    std::atomic<bool> done{false};  // The plan is complete, and is not written any more.
    PeriodPlan plan;
  };
  // Periods of fewer operators are planned several at a time.
  static constexpr int64_t kShort = 256;

  std::shared_ptr<const Program> program_;
  WorkingSet::ByNode touched_{};
  WorkingSet::ByNode working_set_{};
  FreeSpaceEstimate free_space_;
  std::shared_ptr<PlanInProgress> in_progress_;  // Null: no plan is being made.
  bool planned_ = false;
  std::vector<PlannedMove> moves_;
  std::vector<bool> makes_discarded_;  // By step.
  PeriodCost cost_;
};

// A step of a known program, which is expected next.
struct PlanPosition {
  KnownProgram* known = nullptr;
  int64_t step = 0;
  int64_t births_before = 0;  // Births before the position's period.
};

inline std::optional<PeriodPlan> KnownProgram::take_finished_plan() {
  if (in_progress_ == nullptr || !in_progress_->done.load(std::memory_order_acquire)) return std::nullopt;
  return std::move(std::exchange(in_progress_, nullptr)->plan);
}

}  // namespace innkeeper::plan
