#include "plan/known_program.h"

#include <algorithm>

namespace innkeeper::plan {
namespace {

// By step: whether a move discards a block that is born there.
std::vector<bool> steps_that_make_discarded(const Program& program, const std::vector<PlannedMove>& moves) {
  std::vector<bool> makes(program.steps.size());
  for (const PlannedMove& move : moves) {
    if (!move.discards || move.slot.lasting) continue;
    const int64_t number = move.slot.number + move.slot.age(program.births) * program.births;
    const auto born =
        std::lower_bound(program.steps.begin(), program.steps.end(), number,
                         [](const Program::Step& step, int64_t it) { return step.births < it; });
    if (born != program.steps.end()) makes[static_cast<size_t>(born - program.steps.begin())] = true;
  }
  return makes;
}

}  // namespace

KnownProgram::KnownProgram(Program period) {
  cost_.operators = period.length();
  if (cost_.operators < kShort) cost_.times = (kShort + cost_.operators - 1) / cost_.operators;
  program_ =
      std::make_shared<const Program>(cost_.times > 1 ? repeated(period, cost_.times) : std::move(period));
  for (const NodeId node : program_->nodes()) touched_[index_of(node)] = program_->touched_at(node);
  working_set_ = touched_;
}

void KnownProgram::adopt(PeriodPlan plan) {
  working_set_ = plan.working_set;
  planned_ = true;
  moves_ = std::move(plan.moves);
  makes_discarded_ = steps_that_make_discarded(*program_, moves_);
  cost_ = plan.cost;
}

void KnownProgram::start_plan(const std::function<void(std::function<void()>)>& run,
                              std::function<PeriodPlan()> make) {
  in_progress_ = std::make_shared<PlanInProgress>();
  run([shared = in_progress_, make = std::move(make)] {
    shared->plan = make();
    shared->done.store(true, std::memory_order_release);
  });
}

}  // namespace innkeeper::plan
