#include "plan/tracker.h"

#include <algorithm>

namespace innkeeper::plan {

void Tracker::follow(const PlanPosition& at) {
  at_ = at;
  KnownProgram& known = *at.known;
  whole_ = at.step == 0 && known.is_planned();
  steady_ = false;
  known.free_space().start_period();
  const auto first =
      std::lower_bound(known.moves().begin(), known.moves().end(), at.step,
                       [](const PlannedMove& move, int64_t step) { return move.after < step; });
  move_ = static_cast<size_t>(first - known.moves().begin());
}

void Tracker::start_next_period(bool replanned) {
  const bool steady = whole_ && !replanned;
  follow({at_.known, 0, at_.births_before + at_.known->program().births});
  steady_ = steady;
}

void Tracker::leave() {
  at_.known = nullptr;
  stop_ordering();
}

void Tracker::break_period() {
  whole_ = steady_ = false;
  stop_ordering();
}

void Tracker::stop_ordering() {
  has_left_ = true;
  leaving_.clear();
  for (Arrivals& arriving : arriving_) arriving.due.clear();
}

bool Tracker::is_expected(const History& history) const {
  return at_.known->program().is_step(at_.step, at_.births_before, history, history.end() - 1);
}

bool Tracker::advance(bool issue) {
  const std::vector<PlannedMove>& moves = at_.known->moves();
  for (; move_ < moves.size() && moves[move_].after == at_.step; ++move_) {
    if (!issue) continue;
    const PlannedMove& move = moves[move_];
    auto& due = move.arrives ? arriving_at(move.node).due : leaving_;
    due.push_back({move.node, move.slot.name(at_.births_before), move.arrives, move.discards});
  }
  return ++at_.step == at_.known->program().length();
}

void Tracker::used(std::span<const Touch> touches) {
  for (Arrivals& arriving : arriving_) {
    arriving.postponed = false;
    if (arriving.due.empty()) continue;
    std::erase_if(arriving.due, [&](const PendingMove& due) {
      return std::any_of(touches.begin(), touches.end(),
                         [&](const Touch& touch) { return touch.block == due.name; });
    });
  }
}

bool Tracker::next(PendingMove& move) {
  std::deque<PendingMove>* const due = next_list();
  if (due == nullptr) return false;
  move = given_ = due->front();
  due->pop_front();
  return true;
}

std::deque<PendingMove>* Tracker::next_list() {
  if (!leaving_.empty()) return &leaving_;
  for (Arrivals& arriving : arriving_) {
    if (!arriving.postponed && !arriving.due.empty()) return &arriving.due;
  }
  return nullptr;
}

Tracker::Arrivals& Tracker::arriving_at(NodeId node) {
  const auto found = std::find_if(arriving_.begin(), arriving_.end(),
                                  [node](const Arrivals& each) { return each.node == node; });
  if (found != arriving_.end()) return *found;
  arriving_.emplace_back().node = node;
  return arriving_.back();
}

void Tracker::postpone() {
  Arrivals& arriving = arriving_at(given_.node);
  arriving.due.push_front(given_);
  arriving.postponed = true;
}

}  // namespace innkeeper::plan
