#include "plan/planner.h"

#include <algorithm>

#include "base/log.h"
#include "plan/bound.h"

namespace innkeeper::plan {

// ---------------------------------------------------------------- names

Name Planner::meet(Block* block) {
  const Name name = stream_.name();
  Met& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.block != nullptr) elders_.emplace(place.name, place.block);
  place = {name, block};
  return name;
}

void Planner::forget(Name name) {
  Met& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.name == name) {
    place.block = nullptr;
  } else {
    elders_.erase(name);
  }
  stream_.died(name);
}

Block* Planner::block_of(Name name) const {
  if (name <= 0) return nullptr;
  const Met& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.name == name) return place.block;
  const auto found = elders_.find(name);
  return found == elders_.end() ? nullptr : found->second;
}

// ---------------------------------------------------------------- following

void Planner::ended(NodeId node, std::span<const Touch> touches) {
  stream_.ended(node, touches);
  const int64_t length = finder_.look(stream_);
  postponed_ = false;
  if (!arriving_.empty()) {
    std::erase_if(arriving_, [&](const Due& due) {
      return std::any_of(touches.begin(), touches.end(),
                         [&](const Touch& touch) { return touch.block == due.name; });
    });
  }
  if (known_ != nullptr) {
    if (known_->program.is_step(step_, births_before_, stream_, stream_.end() - 1)) return order_step();
    diverge();
  }
  rejoin();
  if (known_ == nullptr && length != 0) learn(length);
}

void Planner::order_step() {
  const std::vector<Move>& moves = known_->moves;
  for (; move_ < moves.size() && moves[move_].after == step_; ++move_) {
    auto& due = moves[move_].arrives ? arriving_ : leaving_;
    due.push_back({moves[move_].node, moves[move_].slot.name(births_before_)});
  }
  if (++step_ == known_->program.length()) end_round();
}

// What was evicted without a plan in a whole round says how much room is lacking. The first round begins with
// other blocks at the node than those after it, so it says nothing.
void Planner::end_round() {
  bool lacks = false;
  if (steady_ && known_->scheduled < kSchedules) {
    for (size_t i = 0; i < kMaxNodes; ++i) {
      if (unplanned_[i] == 0) continue;
      const int64_t most = room_(NodeId{static_cast<uint8_t>(i)}).count() / kLackShare;
      known_->lacking[i] += std::min(unplanned_[i], most);
      lacks = true;
    }
  }
  if (whole_) {
    ++rounds_;
    cost_ = known_->cost;
  }
  if (lacks) (void)schedule(*known_);
  const bool steady = whole_;
  enter(*known_, 0, births_before_ + known_->program.births);
  steady_ = steady;
}

void Planner::enter(Known& known, int64_t step, int64_t births_before) {
  known_ = &known;
  step_ = step;
  births_before_ = births_before;
  whole_ = step == 0;
  steady_ = false;
  unplanned_.fill(0);
  const auto first = std::lower_bound(known.moves.begin(), known.moves.end(), step,
                                      [](const Move& move, int64_t at) { return move.after < at; });
  move_ = static_cast<size_t>(first - known.moves.begin());
}

void Planner::diverge() {
  ++divergences_;
  known_ = nullptr;
  leaving_.clear();
  arriving_.clear();
}

void Planner::unplanned(NodeId node, Bytes size) {
  if (known_ != nullptr) unplanned_[index_of(node)] += size.count();
}

// ---------------------------------------------------------------- orders

bool Planner::next(Order& order) {
  while (!leaving_.empty() || (!arriving_.empty() && !postponed_)) {
    const bool arrives = leaving_.empty();
    auto& due = arrives ? arriving_ : leaving_;
    given_ = due.front();
    due.pop_front();
    order = {block_of(given_.name), given_.node, arrives};
    if (order.block != nullptr) return true;
  }
  return false;
}

void Planner::postpone() {
  arriving_.push_front(given_);
  postponed_ = true;
}

// ---------------------------------------------------------------- programs

bool Planner::was(const Known& known, int64_t step, int64_t births_before) const {
  int64_t operation = stream_.end() - 1;
  for (int64_t i = 0; i < kJoined; ++i, --operation, --step) {
    if (operation < stream_.begin()) return false;
    if (step < 0) {
      step += known.program.length();
      births_before -= known.program.births;
    }
    if (!known.program.is_step(step, births_before, stream_, operation)) return false;
  }
  return true;
}

void Planner::rejoin() {
  auto [place, last] = places_.equal_range(stream_.at(stream_.end() - 1).key);
  for (int tries = 0; place != last && tries < kPlaces; ++place, ++tries) {
    Known& known = *place->second.known;
    const int64_t step = place->second.step;
    const int64_t births_before = stream_.births() - known.program.steps[static_cast<size_t>(step)].births;
    if (!was(known, step, births_before)) continue;
    const bool last_step = step + 1 == known.program.length();
    return enter(known, last_step ? 0 : step + 1, births_before + (last_step ? known.program.births : 0));
  }
}

void Planner::learn(int64_t length) {
  if (stream_.end() < refused_until_) return;
  Known& known = programs_.emplace_front();
  known.program = make_program(stream_, length);
  known.cost = {.operators = length, .bound = bound(known.program)};
  if (length < kShort) {
    known.cost.times = (kShort + length - 1) / length;
    known.program = repeated(known.program, known.cost.times);
  }
  if (!schedule(known)) {                                     // all of it fits: nothing is to move
    refused_until_ = stream_.end() + known.program.length();  // what was looked at is not looked at each time
    programs_.pop_front();
    finder_.refuse();
    return;
  }
  for (int64_t step = 0; step < known.program.length(); ++step) {
    if (const auto key = known.program.key_of(step)) places_.emplace(*key, Place{&known, step});
  }
  if (programs_.size() > kKnown) {
    const Known* oldest = &programs_.back();
    std::erase_if(places_, [oldest](const auto& entry) { return entry.second.known == oldest; });
    programs_.pop_back();
  }
  enter(known, 0, stream_.births());
}

// False if nothing is to move.
bool Planner::schedule(Known& known) {
  ++known.scheduled;
  known.moves.clear();
  known.cost.arriving = known.cost.leaving = Bytes(0);
  for (const NodeId node : known.program.nodes()) {
    const Bytes room = room_(node) - Bytes(known.lacking[index_of(node)]);
    if (room <= Bytes(0) || known.program.touched_at(node) <= room) continue;  // none is wanted, or all fits
    Schedule made = make_schedule(known.program, node, room);
    known.moves.insert(known.moves.end(), made.moves.begin(), made.moves.end());
    known.cost.arriving += Bytes(made.arriving.count() / known.cost.times);
    known.cost.leaving += Bytes(made.leaving.count() / known.cost.times);
    if (made.moves.empty() || !log_enabled(LogLevel::info)) continue;
    log(LogLevel::info, "planned: a round of " + std::to_string(known.program.length()) +
                            " operators, in which " + to_string(made.arriving) + " arrive at node " +
                            std::to_string(index_of(node)) + " and " + to_string(made.leaving) + " leave it");
  }
  std::stable_sort(known.moves.begin(), known.moves.end(),
                   [](const Move& a, const Move& b) { return a.after < b.after; });
  return !known.moves.empty();
}

Bytes Planner::bound(const Program& program) const {
  Bytes least{0};
  for (const NodeId node : program.nodes()) {
    const Bytes room = room_(node);
    if (room > Bytes(0)) least += live_excess(program, node, room);
  }
  return least;
}

}  // namespace innkeeper::plan
