// Makes the plan of a known program for the free space that its nodes have now: at once, or on a background
// thread if that takes long.
//
// Ownership: the engine view must outlive it.
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "plan/engine_view.h"
#include "plan/known_program.h"
#include "plan/period_plan.h"

namespace innkeeper::plan {

class PlanMaker {
 public:
  // Runs a job on another thread, concurrently with the program; null: all plans are made at once.
  using RunInBackground = std::function<void(std::function<void()>)>;

  PlanMaker(const EngineView& engine, RunInBackground run_in_background)
      : engine_(engine), run_in_background_(std::move(run_in_background)) {}

  // The plan; nothing if it is made in the background, as `known` says then (KnownProgram::is_being_planned).
  // Requires: no plan of the program is being made.
  std::optional<PeriodPlan> make(KnownProgram& known) const;

 private:
  // Periods from this length on are planned in the background; from half of it if recompute, which takes
  // longer to plan, is on.
  static constexpr int64_t kLong = 2048;

  const EngineView& engine_;
  const RunInBackground run_in_background_;
};

}  // namespace innkeeper::plan
