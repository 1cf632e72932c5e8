#include "plan/plan_maker.h"

#include <vector>

namespace innkeeper::plan {

std::optional<PeriodPlan> PlanMaker::make(KnownProgram& known) const {
  FreeSpaceEstimate& free_space = known.free_space();
  free_space.start_schedule();
  std::vector<PlannedNode> nodes;
  Backing backing;
  bool fits = true;
  bool may_discard = false;
  for (const NodeId node : known.program().nodes()) {
    PlannedNode& at = nodes.emplace_back();
    at.node = node;
    at.touched = known.touched(node);
    at.whole = engine_.free_space(node);
    at.space = free_space.usable(node, at.whole);
    if (at.fits()) continue;
    fits = false;
    at.about = engine_.about(node);
    may_discard |= at.about.may_discard;
    if (at.about.backing != node) backing.node = at.about.backing;
  }
  if (backing.node != kNoNode) {
    const Bytes whole = engine_.free_space(backing.node);
    free_space.set_backing(backing.node, whole);
    backing.space = whole - known.touched(backing.node);
  }
  const int64_t times = known.cost().times;
  if ((fits && !known.is_planned()) || !run_in_background_ ||
      known.program().length() < (may_discard ? kLong / 2 : kLong))
    return plan_period(known.program(), times, nodes, backing);
  known.start_plan(run_in_background_, [program = known.shared_program(), nodes = std::move(nodes), times,
                                        backing] { return plan_period(*program, times, nodes, backing); });
  return std::nullopt;
}

}  // namespace innkeeper::plan
