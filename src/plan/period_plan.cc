#include "plan/period_plan.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "plan/backing.h"
#include "plan/bound.h"
#include "plan/recompute.h"

namespace innkeeper::plan {
namespace {

// Time of a link for these bytes, seconds; 0: unknown.
double seconds(Bytes size, double link) { return link > 0 ? static_cast<double>(size.count()) / link : 0; }

std::string on_link(Bytes size, double link) {
  if (link <= 0) return "";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), " (%.2f ms on its link)", 1e3 * seconds(size, link));
  return text.data();
}

std::string said_of(const Program& program, int64_t times, const Schedule& made, Bytes missing,
                    const PlannedNode& at) {
  Bytes discarded{0};
  for (const PlannedMove& move : made.moves)
    if (move.discards) discarded += move.size;
  const std::string again =
      discarded == Bytes(0) ? "" : ", and " + to_string(discarded) + " are discarded and recomputed";
  const std::string periods = times == 1 ? "a period" : std::to_string(times) + " periods";
  return "planned: " + periods + " of " + std::to_string(program.length() / times) + " operators, in which " +
         to_string(made.arriving) + " arrive at " + at.about.name + " and " + to_string(made.leaving) +
         " leave it" + again + on_link(std::max(made.arriving, made.leaving), at.about.speed.link) +
         "; nothing would, with " + to_string(missing) + " more than its " + to_string(at.whole);
}

// A block that was not written since it last was on the disk is not copied there again.
std::string said_of_backing(const Schedule& made, int64_t times) {
  Bytes copied{0};
  for (const PlannedMove& move : made.moves)
    if (!move.arrives && move.written) copied += move.size;
  return "planned: of that " + to_string(Bytes(copied.count() / times)) +
         " go on to the disk in a period, and " + to_string(Bytes(made.arriving.count() / times)) +
         " come from there";
}

}  // namespace

PeriodPlan plan_period(const Program& program, int64_t times, const std::vector<PlannedNode>& nodes,
                       const Backing& backing) {
  PeriodPlan plan;
  plan.cost.operators = program.length() / times;
  plan.cost.times = times;
  std::vector<Schedule> above;  // Schedules of the nodes that the backing node backs.
  Uses clock;
  for (const PlannedNode& at : nodes) {
    if (at.whole <= Bytes(0)) continue;  // The engine wants no plan for the node.
    Uses uses = uses_at(program, at.node, at.about.speed);
    plan.working_set[index_of(at.node)] += shortage(uses, Bytes(0));
    const Bytes bound = live_excess(uses, at.whole);
    plan.cost.bound += bound;
    plan.cost.least_copying = std::max(plan.cost.least_copying, seconds(bound, at.about.speed.link));
    const Bytes missing = shortage(uses, at.whole);
    plan.cost.shortage += missing;
    if (at.fits()) continue;
    Schedule made = at.about.may_discard ? schedule_with_recompute(program, uses, at.space)
                                         : make_schedule(uses, at.space);
    if (made.moves.empty()) continue;
    plan.moves.insert(plan.moves.end(), made.moves.begin(), made.moves.end());
    plan.cost.arriving += Bytes(made.arriving.count() / times);
    plan.cost.leaving += Bytes(made.leaving.count() / times);
    plan.said.push_back(said_of(program, times, made, missing, at));
    if (at.node == backing.node) continue;
    above.push_back(std::move(made));
    clock = std::move(uses);
  }
  if (backing.node != kNoNode && !above.empty()) {
    const Uses uses = uses_of_backing(backing.node, clock, above);
    plan.working_set[index_of(backing.node)] += shortage(uses, Bytes(0));
    const Schedule made =
        backing.space > Bytes(0) ? make_backing_schedule(uses, backing.space, above) : Schedule();
    plan.moves.insert(plan.moves.end(), made.moves.begin(), made.moves.end());
    if (!made.moves.empty()) plan.said.push_back(said_of_backing(made, times));
  }
  std::stable_sort(plan.moves.begin(), plan.moves.end(),
                   [](const PlannedMove& a, const PlannedMove& b) { return a.after < b.after; });
  return plan;
}

}  // namespace innkeeper::plan
