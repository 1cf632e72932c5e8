#include "plan/recompute.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace innkeeper::plan {
namespace {

// The candidates' first 1/16, 1/8 and so on are tried; of a period from kLong operators on, only all of them.
constexpr size_t kParts[] = {16, 8, 4, 2, 1};
constexpr int64_t kLong = 20'000;  // Operators.

// To recompute more must shorten the simulated period to this part, because the simulation is a little off.
// It is further off if the time of kernels is unknown: they take longer than to touch their bytes, so
// concurrent copies cost less than simulated.
constexpr double kWorthIt = 0.995;
constexpr double kWorthItUntimed = 0.96;

// If the host's pace bounds a period, many schedules seem to take the same time. Of those within this factor
// of the fastest, the one that copies least is best: the simulation leaves out the delays of a busy link.
constexpr double kAsFast = 1.005;

// A block of this period, or a lasting one.
struct Life {
  std::vector<int64_t> uses;    // Steps that use it, ascending, each once.
  std::vector<int64_t> writes;  // Steps that write it, without the one that makes it.
  int64_t dies = INT64_MAX;     // Step after which it dies.
  int64_t born = -1;            // Step whose pure operator makes it; -1: none.
  Bytes size{0};
  bool here = true;  // All uses are at the node.
  bool stays = false;

  bool is_written(int64_t behind, int64_t before) const {
    const auto first = std::upper_bound(writes.begin(), writes.end(), behind);
    return first != writes.end() && *first < before;
  }
};

class Lives {
 public:
  Lives(const Program& program, NodeId node, double slower) : program_(program), slower_(slower) {
    for (int64_t step = 0; step < program.length(); ++step) {
      const bool here = program.steps[static_cast<size_t>(step)].node == node;
      for (const Program::Use& use : program.uses_of(step)) {
        Life& life = lives_[use.slot.key()];
        if (use.pure && life.uses.empty()) {
          life.born = step;
        } else if (use.write || use.pure) {
          life.writes.push_back(step);
        }
        if (life.uses.empty() || life.uses.back() != step) life.uses.push_back(step);
        life.size = std::max(life.size, use.size);
        life.here &= here;
        life.stays |= use.stays;
        if (!use.slot.lasting && use.slot.number < 1)
          later_.insert(use.slot.number + use.slot.age(program.births) * program.births);
      }
    }
    for (const Program::Death& death : program.deaths) {
      const auto found = lives_.find(death.slot.key());
      if (found != lives_.end()) found->second.dies = std::min(found->second.dies, death.after);
    }
  }

  // Recomputed after its longest gap over which the inputs of its operator stay as they were.
  std::optional<RecomputedBlock> recomputed(const Slot& slot) const {
    const Life& life = lives_.at(slot.key());
    if (life.born < 0 || !life.here || life.stays || later_.contains(slot.number)) return std::nullopt;
    if (program_.bytes_of(life.born) > 2 * slower_ * static_cast<double>(life.size.count()))
      return std::nullopt;
    RecomputedBlock best{.slot = slot, .born = life.born, .size = life.size};
    for (size_t i = 0; i + 1 < life.uses.size(); ++i) {
      const int64_t after = life.uses[i];
      const int64_t use = life.uses[i + 1];
      if (use - after <= std::max<int64_t>(best.use - best.after, 1) || life.is_written(life.born, after + 1))
        continue;
      if (!inputs_are_there(life.born, use)) continue;
      best.after = after;
      best.use = use;
    }
    return best.use != 0 ? std::optional(best) : std::nullopt;
  }

 private:
  bool inputs_are_there(int64_t born, int64_t use) const {
    const auto uses = program_.uses_of(born);
    return std::all_of(uses.begin(), uses.end(), [&](const Program::Use& input) {
      if (input.pure) return true;  // It is another result.
      if (!input.slot.lasting && input.slot.number < 1) return false;
      const Life& life = lives_.at(input.slot.key());
      return life.here && life.dies >= use && !life.is_written(born - 1, use);
    });
  }

  const Program& program_;
  const double slower_;
  std::unordered_map<int64_t, Life> lives_;  // Blocks by Slot::key().
  std::unordered_set<int64_t> later_;        // Numbers of this period's blocks that later periods use.
};

// The name of a block of with_recomputed() in the program without recomputed blocks.
Slot as_before(Slot slot, int64_t births, std::span<const RecomputedBlock> recomputed) {
  if (slot.lasting) return slot;
  const auto all = births + static_cast<int64_t>(recomputed.size());
  const int64_t age = slot.age(all);
  int64_t number = slot.number + age * all;
  if (number > births) number = recomputed[static_cast<size_t>(number - births - 1)].slot.number;
  return {number - age * births, false};
}

}  // namespace

std::vector<RecomputedBlock> may_be_recomputed(const Program& program, NodeId node, double slower) {
  const Lives lives(program, node, slower);
  std::vector<RecomputedBlock> all;
  for (int64_t step = 0; step < program.length(); ++step) {
    for (const Program::Use& use : program.uses_of(step)) {
      if (!use.pure || use.slot.lasting || use.slot.number < 1) continue;
      const auto made = lives.recomputed(use.slot);
      if (made.has_value()) all.push_back(*made);
    }
  }
  // Greedy, the largest first. Inputs of a chosen block are not discarded, nor are blocks computed from one.
  std::stable_sort(all.begin(), all.end(),
                   [](const RecomputedBlock& a, const RecomputedBlock& b) { return a.size > b.size; });
  std::unordered_set<int64_t> discarded, read;  // Keys of chosen blocks, and of their inputs.
  std::vector<RecomputedBlock> chosen;
  for (const RecomputedBlock& each : all) {
    const auto uses = program.uses_of(each.born);
    const auto is_discarded = [&](const Program::Use& use) {
      return !use.pure && discarded.contains(use.slot.key());
    };
    if (read.contains(each.slot.key()) || std::any_of(uses.begin(), uses.end(), is_discarded)) continue;
    for (const Program::Use& use : uses)
      if (!use.pure) read.insert(use.slot.key());
    discarded.insert(each.slot.key());
    chosen.push_back(each);
  }
  return chosen;
}

Program with_recomputed(const Program& program, std::span<const RecomputedBlock> recomputed) {
  Program made;
  made.births = program.births + static_cast<int64_t>(recomputed.size());
  std::unordered_map<int64_t, size_t> which;  // Index in `recomputed` by key.
  std::multimap<int64_t, size_t> again;       // Index in `recomputed` by step of use.
  for (size_t i = 0; i < recomputed.size(); ++i) {
    which.emplace(recomputed[i].slot.key(), i);
    again.emplace(recomputed[i].use, i);
  }
  const auto renamed = [&](const Slot& slot, int64_t step) -> Slot {
    if (const auto found = which.find(slot.key());
        found != which.end() && step >= recomputed[found->second].use)
      return {program.births + 1 + static_cast<int64_t>(found->second), false};
    if (slot.lasting) return slot;
    return {slot.number - slot.age(program.births) * (made.births - program.births), false};
  };
  for (int64_t step = 0; step < program.length(); ++step) {
    Program::Step copy = program.steps[static_cast<size_t>(step)];
    copy.first = made.uses.size();
    const auto [first, last] = again.equal_range(step);
    for (auto it = first; it != last; ++it) {
      const RecomputedBlock& each = recomputed[it->second];
      const Program::Step& born = program.steps[static_cast<size_t>(each.born)];
      copy.seconds += born.seconds;
      copy.host += born.host;
      for (Program::Use use : program.uses_of(each.born)) {
        if (use.pure && use.slot.key() != each.slot.key())
          continue;  // It is another result, which the program does not keep.
        use.slot = renamed(use.slot, step);
        made.uses.push_back(use);
      }
    }
    made.steps.push_back(copy);
    for (Program::Use use : program.uses_of(step)) {
      use.slot = renamed(use.slot, step);
      made.uses.push_back(use);
    }
  }
  for (Program::Death death : program.deaths) {
    death.slot = renamed(death.slot, death.after);
    made.deaths.push_back(death);
  }
  for (const RecomputedBlock& each : recomputed) made.deaths.push_back({each.after, each.slot});
  return made;
}

Schedule schedule_with_recompute(const Program& program, const Uses& uses, Bytes space) {
  Schedule best = make_schedule(uses, space);
  if (best.moves.empty()) return best;
  std::vector<RecomputedBlock> all = may_be_recomputed(program, uses.node, slower(uses.speed));
  const auto covers = [&](const RecomputedBlock& each) {
    const auto first = uses.alive.begin() + each.after + 1;
    return std::any_of(first, uses.alive.begin() + each.use,
                       [&](int64_t alive) { return alive > space.count(); });
  };
  std::erase_if(all, [&](const RecomputedBlock& each) { return !covers(each); });
  const double worth_it = program.is_timed() ? kWorthIt : kWorthItUntimed;
  const auto copied = [](const Schedule& made) { return made.arriving + made.leaving; };
  double shortest = best.time;
  for (const size_t part : kParts) {
    const std::span some(all.data(), all.size() / part);
    if (some.empty() || (part != 1 && program.length() > kLong)) continue;
    Schedule made = make_schedule(uses_at(with_recomputed(program, some), uses.node, uses.speed), space);
    const bool as_fast = !uses.host.empty() && made.time <= kAsFast * shortest && copied(made) < copied(best);
    if (made.time >= worth_it * best.time && !as_fast) continue;
    shortest = std::min(shortest, made.time);
    for (PlannedMove& move : made.moves) move.slot = as_before(move.slot, program.births, some);
    for (Absence& away : made.away) away.slot = as_before(away.slot, program.births, some);
    std::vector<PlannedMove> moves;  // Within a step, evictions and discards first.
    for (const RecomputedBlock& each : some)
      moves.push_back(
          {.after = each.after, .node = uses.node, .slot = each.slot, .size = each.size, .discards = true});
    moves.insert(moves.end(), made.moves.begin(), made.moves.end());
    std::stable_sort(moves.begin(), moves.end(),
                     [](const PlannedMove& a, const PlannedMove& b) { return a.after < b.after; });
    made.moves = std::move(moves);
    best = std::move(made);
  }
  return best;
}

}  // namespace innkeeper::plan
