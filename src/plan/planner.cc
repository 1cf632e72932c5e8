#include "plan/planner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/log.h"

namespace innkeeper::plan {

Name Planner::meet(Block* block) {
  const Name name = history_.name();
  blocks_.add(name, block);
  return name;
}

void Planner::forget(Name name) {
  blocks_.remove(name);
  history_.died(name);
  trial_.died(name);
}

void Planner::ended(NodeId node, std::span<const Touch> touches, const OperatorTime& time, Bytes arrived) {
  history_.ended(node, touches, time.kernels, time.host);
  if (trial_.ended(history_.end(), node, touches, time, arrived)) tracker_.break_period();
  tracker_.used(touches);
  if (KnownProgram* const known = tracker_.followed(); known != nullptr) {
    if (std::optional<PeriodPlan> plan = known->take_finished_plan()) take_plan(*known, std::move(*plan));
  }
  if (tracker_.followed() != nullptr) {
    if (tracker_.is_expected(history_)) {
      if (tracker_.advance(!trial_.suspended())) end_period();
      return;
    }
    diverge();
  }
  const int64_t length = search_.look(history_);
  if (const auto found = catalog_.find(history_)) follow(*found);
  if (tracker_.followed() == nullptr && length != 0) learn(length);
  if (tracker_.followed() == nullptr && working_set_.is_estimate_due(history_)) estimate_working_set();
}

bool Planner::next(Order& order) {
  for (PendingMove move; tracker_.next(move);) {
    order = {blocks_.find(move.name), move.node, move.arrives, move.discards};
    if (order.block != nullptr) return true;
  }
  return false;
}

void Planner::unplanned(NodeId node, Bytes size) {
  if (KnownProgram* const known = tracker_.followed(); known != nullptr) {
    known->free_space().evicted(node, size);
  } else {  // A period that was refused because it fits may not fit any more.
    working_set_.evicted_without_a_period(history_);
    search_.evicted_without_a_period(history_);
  }
}

void Planner::follow(const PlanPosition& at) {
  tracker_.follow(at);
  working_set_.follow(at.known->working_set(), at.known->program().length());
}

void Planner::end_period() {
  KnownProgram& known = *tracker_.followed();
  if (tracker_.is_whole()) {
    ++periods_;
    followed_times_ += known.cost().times;
    cost_ = known.cost();
    followed_ = &known;
  }
  FreeSpaceEstimate& free_space = known.free_space();
  const bool again = !known.is_being_planned() && !trial_.suspended() &&
                     (free_space.has_changed(known.program(), engine_, periods_) ||
                      (tracker_.is_steady() && free_space.learn_shortage(known.moves())));
  if (again) {
    make_plan(known);
    if (tracker_.followed() == nullptr) return;  // Its plan has no moves.
  }
  tracker_.start_next_period(again);
  working_set_.follow(known.working_set(), known.program().length());
}

void Planner::diverge() {
  ++divergences_;
  tracker_.leave();
}

void Planner::interrupt() {
  tracker_.leave();
  catalog_.each([](KnownProgram& known) {
    known.free_space().reset();
    known.cancel_plan();
  });
}

void Planner::reset_counts() {
  catalog_.each([this](KnownProgram& known) { known.free_space().restart_periods(periods_); });
  periods_ = followed_times_ = divergences_ = 0;
  cost_ = {};
  followed_ = nullptr;
}

void Planner::learn(int64_t length) {
  std::optional<Program> period = make_program(history_, length);
  if (!period) return search_.refuse(history_, length);
  KnownProgram& known = catalog_.add(std::move(*period));
  follow({&known, 0, history_.births()});
  make_plan(known);
  if (tracker_.followed() == nullptr) return;  // Its plan has no moves.
  catalog_.index(known);
  if (const KnownProgram* const oldest = catalog_.surplus(); oldest != nullptr) remove_program(*oldest);
}

void Planner::make_plan(KnownProgram& known) {
  if (std::optional<PeriodPlan> plan = maker_.make(known)) take_plan(known, std::move(*plan));
}

// Of the followed program. A program is not followed if its first plan has no moves.
void Planner::take_plan(KnownProgram& known, PeriodPlan plan) {
  if (plan.moves.empty() && !known.is_planned()) {
    working_set_.follow(plan.working_set, known.program().length());
    const int64_t length = known.cost().operators;
    remove_program(known);
    return search_.refuse(history_, length);
  }
  for (const std::string& line : plan.said) log(LogLevel::info, line);
  trial_.start(known.program().length());
  known.adopt(std::move(plan));
  if (followed_ == &known) followed_ = nullptr;  // The program has not followed the new plan yet.
  follow(tracker_.position());
}

void Planner::remove_program(const KnownProgram& known) {
  if (followed_ == &known) followed_ = nullptr;
  if (tracker_.followed() == &known) tracker_.forget();
  catalog_.remove(known);
}

// A node that backs others holds the bytes for which they have no free space.
void Planner::estimate_working_set() {
  working_set_.estimate(history_, [this](NodeId node, Bytes used) -> std::pair<NodeId, Bytes> {
    const NodeId backing = engine_.about(node).backing;
    if (backing == node) return {kNoNode, Bytes(0)};
    return {backing, std::max(used - engine_.free_space(node), Bytes(0))};
  });
}

std::vector<Moved> Planner::moved() const {
  if (followed_ == nullptr) return {};
  std::unordered_map<Block*, Moved> found;
  for (const PlannedMove& move : followed_->moves()) {
    if (move.stored) continue;
    Block* const block = move.slot.lasting ? blocks_.find(move.slot.number) : nullptr;
    if (move.slot.lasting && block == nullptr) continue;  // The block has died, so no period moves it.
    Moved& sum = found[block];
    sum.block = block;
    if (move.arrives) {
      sum.arriving += move.size;
    } else if (move.written) {
      sum.leaving += move.size;
    }
  }
  std::vector<Moved> all;
  for (const auto& [block, sum] : found) {
    const int64_t times = followed_->cost().times;
    all.push_back({block, Bytes(sum.arriving.count() / times), Bytes(sum.leaving.count() / times)});
  }
  return all;
}

}  // namespace innkeeper::plan
