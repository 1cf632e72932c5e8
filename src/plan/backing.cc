#include "plan/backing.h"

#include <algorithm>

#include "plan/bound.h"

namespace innkeeper::plan {
namespace {

// 1/8 of the free space is kept for blocks on their way down and for moves without a plan.
constexpr int64_t kTransit = 8;

// Ratio of a PCIe 4 link's bandwidth to an SSD's.
constexpr double kSlowerBelow = 8;

}  // namespace

Uses uses_of_backing(NodeId node, const Uses& clock, std::span<const Schedule> above) {
  Uses made;
  made.node = node;
  made.speed = {kSlowerBelow * slower(clock.speed), 1};
  made.length = clock.length;
  made.births = clock.births;
  made.touched = clock.touched;
  made.alive.resize(static_cast<size_t>(clock.length));
  size_t first = 0;  // Index of the current node's first version.
  for (const Schedule& schedule : above) {
    for (const Absence& away : schedule.away) {
      const size_t version = first + away.version;
      if (version >= made.written.size()) made.written.resize(version + 1);
      made.written[version] = away.written;
      const int64_t size = round_up(away.size).count();
      add_difference(made.alive, away.begin - 1, away.use + 1, size);
      if (away.begin < away.back)
        made.gaps.push_back({made.blocks.size(), away.begin, away.back, away.returns, away.written, version});
      made.blocks.push_back({.slot = away.slot, .size = size, .written = away.written});
    }
    first = made.written.size();
  }
  sum_up(made.alive);
  return made;
}

Schedule make_backing_schedule(const Uses& uses, Bytes space, std::span<const Schedule> above) {
  if (shortage(uses, space) == Bytes(0)) return {};
  Schedule made = make_schedule(uses, Bytes(space.count() - space.count() / kTransit));
  if (made.moves.empty()) return made;
  for (const Schedule& schedule : above) {
    for (const Absence& away : schedule.away) {
      if (!away.returns || !away.written || !away.last) continue;
      const Slot slot = away.slot.later(away.use / uses.length, uses.births);
      made.moves.push_back(
          {.after = away.use % uses.length, .node = uses.node, .slot = slot, .size = away.size});
    }
  }
  std::stable_sort(made.moves.begin(), made.moves.end(), [](const PlannedMove& a, const PlannedMove& b) {
    return a.after != b.after ? a.after < b.after : a.arrives < b.arrives;
  });
  for (PlannedMove& move : made.moves) move.stored = true;
  return made;
}

}  // namespace innkeeper::plan
