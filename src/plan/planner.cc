#include "plan/planner.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/log.h"

namespace innkeeper::plan {

// ---------------------------------------------------------------- names

Name Planner::meet(Block* block) {
  const Name name = history_.name();
  NamedBlock& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.block != nullptr) long_lived_.emplace(place.name, place.block);
  place = {name, block};
  return name;
}

void Planner::forget(Name name) {
  NamedBlock& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.name == name) {
    place.block = nullptr;
  } else {
    long_lived_.erase(name);
  }
  history_.died(name);
  for (size_t i = 0; i < models_; ++i)
    if (on_demand_[i] != nullptr) on_demand_[i]->died(name);
}

Block* Planner::block_of(Name name) const {
  if (name <= 0) return nullptr;
  const NamedBlock& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.name == name) return place.block;
  const auto found = long_lived_.find(name);
  return found == long_lived_.end() ? nullptr : found->second;
}

// ---------------------------------------------------------------- following

// What the operator would have cost on demand, beside what it has cost.
void Planner::count(NodeId node, std::span<const Touch> touches, const OperatorTime& time, Bytes arrived) {
  const auto room_here = [this](size_t i) { return room_(NodeId(static_cast<uint8_t>(i))); };
  std::unique_ptr<OnDemand>& here = on_demand_[index_of(node)];
  if (here == nullptr) {
    here = std::make_unique<OnDemand>(about_ ? about_(node).speed : Speed());
    models_ = std::max(models_, index_of(node) + 1);
  }
  Score::Count now{.operators = history_.end(), .clock = 0, .arrived = arrived};
  clocks_[index_of(node)] = time.clock;
  bool timed = true;
  for (size_t i = 0; i < models_; ++i) {
    OnDemand* const model = on_demand_[i].get();
    if (model == nullptr) continue;
    if (history_.end() % kRoomEvery == kRoomFirst) {
      model->set_room(room_here(i));
      if (about_) model->set_speed(about_(NodeId(static_cast<uint8_t>(i))).speed);
    }
    if (i == index_of(node)) {
      model->ended(touches, time.kernels);
    } else {
      for (const Touch& touch : touches)
        if (touch.write) model->written_elsewhere(touch.block);
    }
    now.clock += clocks_[i];
    timed = timed && clocks_[i] > 0;
    now.model_clock += model->cost().seconds;
    now.model_arrived += model->cost().arrived;
  }
  if (!timed) now.clock = 0;
  const bool suspended = score_.suspended();
  score_.count(now);
  if (score_.suspended() == suspended) return;
  whole_ = steady_ = false;  // of this period a part alone has orders
  stop_ordering();
}

void Planner::stop_ordering() {
  has_left_ = true;
  leaving_.clear();
  for (Arrivals& arriving : arriving_) arriving.due.clear();
}

void Planner::ended(NodeId node, std::span<const Touch> touches, const OperatorTime& time, Bytes arrived) {
  history_.ended(node, touches, time.kernels, time.host);
  count(node, touches, time, arrived);
  for (Arrivals& arriving : arriving_) {
    arriving.postponed = false;
    if (arriving.due.empty()) continue;
    std::erase_if(arriving.due, [&](const PendingMove& due) {
      return std::any_of(touches.begin(), touches.end(),
                         [&](const Touch& touch) { return touch.block == due.name; });
    });
  }
  if (known_ != nullptr && known_->making != nullptr && known_->making->done.load(std::memory_order_acquire))
    take_plan(*known_, std::move(std::exchange(known_->making, nullptr)->plan));
  if (known_ != nullptr) {
    if (known_->program->is_step(step_, births_before_, history_, history_.end() - 1)) return order_step();
    diverge();
  }
  const int64_t length = finder_.look(history_);
  rejoin();
  if (known_ == nullptr && length != 0) learn(length);
  if (known_ == nullptr && working_set_.is_estimate_due(history_)) estimate_working_set();
}

// A node that backs others has what they have no room for.
void Planner::estimate_working_set() {
  working_set_.estimate(history_, [this](NodeId node, Bytes used) -> std::pair<NodeId, Bytes> {
    const NodeId backing = about_ ? about_(node).backing : kNoNode;
    if (backing == node) return {kNoNode, Bytes(0)};
    return {backing, std::max(used - room_(node), Bytes(0))};
  });
}

void Planner::order_step() {
  const std::vector<PlannedMove>& moves = known_->moves;
  for (; move_ < moves.size() && moves[move_].after == step_; ++move_) {
    if (score_.suspended()) continue;
    const PlannedMove& move = moves[move_];
    auto& due = move.arrives ? arriving_at(move.node).due : leaving_;
    due.push_back({move.node, move.slot.name(births_before_), move.drops});
  }
  if (++step_ == known_->program->length()) end_period();
}

void Planner::end_period() {
  if (whole_) {
    ++periods_;
    followed_times_ += known_->cost.times;
    cost_ = known_->cost;
    followed_ = known_;
  }
  const bool again = known_->making == nullptr && !score_.suspended() &&
                     (room_changed(*known_) || (steady_ && learn_what_lacks(*known_)));
  if (again) {
    make_plan(*known_);
    if (known_ == nullptr) return;  // it has none
  }
  const bool steady = whole_ && !again;
  enter(*known_, 0, births_before_ + known_->program->births);
  steady_ = steady;
}

namespace {

// By step: whether a move drops something that is born there.
std::vector<bool> steps_that_make_dropped(const Program& program, const std::vector<PlannedMove>& moves) {
  std::vector<bool> makes(program.steps.size());
  for (const PlannedMove& move : moves) {
    if (!move.drops || move.slot.lasting) continue;
    const int64_t number = move.slot.number + move.slot.age(program.births) * program.births;
    const auto born =
        std::lower_bound(program.steps.begin(), program.steps.end(), number,
                         [](const Program::Step& step, int64_t it) { return step.births < it; });
    if (born != program.steps.end()) makes[static_cast<size_t>(born - program.steps.begin())] = true;
  }
  return makes;
}

// By copies, to the next tier. What leaves a node that backs others since one of them has it is not copied.
int64_t left_as_planned(const std::vector<PlannedMove>& moves) {
  int64_t bytes = 0;
  for (const PlannedMove& move : moves)
    if (!move.arrives && (move.written || !move.stored)) bytes += move.size.count();
  return bytes;
}

}  // namespace

// What was evicted without a plan in a whole period says how much room is lacking. (A period whose schedule
// is new begins with other blocks at the node than those after it, so it says nothing.) Where a schedule for
// less room moves no less in all, the one before is taken for good: it was not the room.
bool Planner::learn_what_lacks(KnownProgram& known) {
  if (known.scheduled >= kMostSchedules || known.moves.empty()) return false;
  int64_t unplanned = 0;
  for (const int64_t bytes : unplanned_) unplanned += bytes;
  if (unplanned == 0) {
    known.least_left = INT64_MAX;
    return false;
  }
  const int64_t left = left_as_planned(known.moves) + unplanned;
  if (left >= known.least_left) {
    known.scheduled = kMostSchedules;
    return std::exchange(known.lacking, known.best) != known.best;
  }
  known.least_left = left;
  known.best = known.lacking;
  for (size_t i = 0; i < kMaxNodes; ++i)
    known.lacking[i] += std::min(unplanned_[i], known.room[i] / kShortageTolerance);
  ++known.scheduled;
  return true;
}

// The engine has another room than when the schedule was made: a budget was set, something was pinned,
// another program came or went. Looked for in each period, and less often where it happens again and again.
bool Planner::room_changed(KnownProgram& known) {
  if (periods_ < known.settles_at) return false;
  const auto changed = [&](NodeId node) {
    const int64_t before = known.room[index_of(node)];
    return std::abs(room_(node).count() - before) > before / kReplanThreshold;
  };
  const std::vector<NodeId> nodes = known.program->nodes();
  if (std::none_of(nodes.begin(), nodes.end(), changed) &&
      (known.backing == kNoNode || !changed(known.backing))) {
    if (periods_ >= known.settles_at + kQuietPeriods) known.changes = 0;
    return false;
  }
  known.settles_at = periods_ + (int64_t{1} << std::min(known.changes++, kMostChanges));
  known.forget_what_lacked();
  return true;
}

void Planner::enter(KnownProgram& known, int64_t step, int64_t births_before) {
  known_ = &known;
  step_ = step;
  births_before_ = births_before;
  whole_ = step == 0 && known.planned;
  steady_ = false;
  unplanned_.fill(0);
  working_set_.follow(known.working_set, known.program->length());
  const auto first = std::lower_bound(known.moves.begin(), known.moves.end(), step,
                                      [](const PlannedMove& move, int64_t at) { return move.after < at; });
  move_ = static_cast<size_t>(first - known.moves.begin());
}

void Planner::diverge() {
  ++divergences_;
  known_ = nullptr;
  stop_ordering();
}

void Planner::interrupt() {
  known_ = nullptr;
  stop_ordering();
  unplanned_.fill(0);
  for (KnownProgram& known : programs_) {
    known.forget_what_lacked();
    known.settles_at = 0;
    known.room.fill(0);  // so the next period is scheduled again
    known.making = nullptr;
  }
}

void Planner::unplanned(NodeId node, Bytes size) {
  if (known_ != nullptr) {
    unplanned_[index_of(node)] += size.count();
  } else {  // what was refused since it fits does not any more
    working_set_.evicted_without_a_period(history_);
    refused_until_ = std::min(refused_until_, history_.end() + std::max(refused_, kShort));
  }
}

// ---------------------------------------------------------------- orders

bool Planner::next(Order& order) {
  if (!leaving_.empty() && give(leaving_, false, order)) return true;
  for (Arrivals& arriving : arriving_) {
    if (!arriving.postponed && !arriving.due.empty() && give(arriving.due, true, order)) return true;
  }
  return false;
}

bool Planner::give(std::deque<PendingMove>& due, bool arrives, Order& order) {
  while (!due.empty()) {
    given_ = due.front();
    due.pop_front();
    order = {block_of(given_.name), given_.node, arrives, given_.drops};
    if (order.block != nullptr) return true;
  }
  return false;
}

Planner::Arrivals& Planner::arriving_at(NodeId node) {
  const auto found = std::find_if(arriving_.begin(), arriving_.end(),
                                  [node](const Arrivals& each) { return each.node == node; });
  if (found != arriving_.end()) return *found;
  arriving_.emplace_back().node = node;
  return arriving_.back();
}

void Planner::postpone() {
  Arrivals& arriving = arriving_at(given_.node);
  arriving.due.push_front(given_);
  arriving.postponed = true;
}

// ---------------------------------------------------------------- programs

bool Planner::was(const KnownProgram& known, int64_t step, int64_t births_before) const {
  int64_t operation = history_.end() - 1;
  for (int64_t i = 0; i < kRejoinLength; ++i, --operation, --step) {
    if (operation < history_.begin()) return false;
    if (step < 0) {
      step += known.program->length();
      births_before -= known.program->births;
    }
    if (!known.program->is_step(step, births_before, history_, operation)) return false;
  }
  return true;
}

void Planner::rejoin() {
  // Not equal_range(), which walks through all that are equal.
  const uint64_t key = history_.at(history_.end() - 1).key;
  auto place = places_.find(key);
  for (int tries = 0; place != places_.end() && place->first == key && tries < kMostPositions;
       ++place, ++tries) {
    KnownProgram& known = *place->second.known;
    const int64_t step = place->second.step;
    const int64_t births_before = history_.births() - known.program->steps[static_cast<size_t>(step)].births;
    if (!was(known, step, births_before)) continue;
    const bool last_step = step + 1 == known.program->length();
    return enter(known, last_step ? 0 : step + 1, births_before + (last_step ? known.program->births : 0));
  }
}

void Planner::learn(int64_t length) {
  if (history_.end() < refused_until_) return;
  std::optional<Program> found = make_program(history_, length);
  if (!found) return refuse(length);
  KnownProgram& known = programs_.emplace_front();
  known.cost.operators = length;
  if (length < kShort) known.cost.times = (kShort + length - 1) / length;
  known.program = std::make_shared<const Program>(known.cost.times > 1 ? repeated(*found, known.cost.times)
                                                                       : std::move(*found));
  for (const NodeId node : known.program->nodes())
    known.touched[index_of(node)] = known.program->touched_at(node);
  known.working_set = known.touched;
  enter(known, 0, history_.births());
  make_plan(known);
  if (known_ == nullptr) return;  // nothing is to move
  known.placed = true;
  for (int64_t step = 0; step < known.program->length(); ++step) {
    if (const auto key = known.program->key_of(step)) places_.emplace(*key, PlanPosition{&known, step});
  }
  if (programs_.size() > kMostPrograms) drop(programs_.back());
}

// A period that is none, or that fits, is looked at again after a while, and the later the more often it was.
void Planner::refuse(int64_t length) {
  refusals_ = length == refused_ ? std::min(refusals_ + 1, 16) : 0;
  refused_ = length;
  refused_until_ = history_.end() + (std::max(length, kShort) << refusals_);
  finder_.refuse();
}

std::vector<Moved> Planner::moved() const {
  if (followed_ == nullptr) return {};
  std::unordered_map<Block*, Moved> found;
  for (const PlannedMove& move : followed_->moves) {
    if (move.stored) continue;
    Block* const block = move.slot.lasting ? block_of(move.slot.number) : nullptr;
    if (move.slot.lasting && block == nullptr) continue;  // it is gone, and so is not moved
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
    const int64_t times = followed_->cost.times;
    all.push_back({block, Bytes(sum.arriving.count() / times), Bytes(sum.leaving.count() / times)});
  }
  return all;
}

// At once, or concurrently with the program. Of the period that is followed, as in take_plan().
void Planner::make_plan(KnownProgram& known) {
  std::vector<PlannedNode> nodes;
  known.backing = kNoNode;
  bool fits = true;
  bool drops = false;
  for (const NodeId node : known.program->nodes()) {
    const size_t index = index_of(node);
    PlannedNode& at = nodes.emplace_back();
    at.node = node;
    at.touched = known.touched[index];
    at.whole = room_(node);
    at.room = at.whole - Bytes(known.lacking[index]);
    known.room[index] = at.whole.count();
    if (at.fits()) continue;
    fits = false;
    if (about_) at.about = about_(node);
    drops |= at.about.drops;
    if (at.about.backing != node) known.backing = at.about.backing;
  }
  Backing backing;
  if (known.backing != kNoNode) {
    const size_t index = index_of(known.backing);
    const Bytes whole = room_(known.backing);
    known.room[index] = whole.count();
    backing = {known.backing, whole - known.touched[index]};
  }
  const int64_t times = known.cost.times;
  if ((fits && !known.planned) || !run_in_background_ ||
      known.program->length() < (drops ? kLong / 2 : kLong))
    return take_plan(known, plan_period(*known.program, times, nodes, backing));
  known.making = std::make_shared<PlanInProgress>();
  run_in_background_(
      [making = known.making, program = known.program, nodes = std::move(nodes), times, backing] {
        making->plan = plan_period(*program, times, nodes, backing);
        making->done.store(true, std::memory_order_release);
      });
}

// A program of which nothing is to move, and never was, is not followed.
void Planner::take_plan(KnownProgram& known, PeriodPlan plan) {
  known.working_set = plan.working_set;
  if (plan.moves.empty() && !known.planned) {
    working_set_.follow(known.working_set, known.program->length());
    const int64_t length = known.cost.operators;
    drop(known);
    return refuse(length);
  }
  for (const std::string& line : plan.said) log(LogLevel::info, line);
  known.planned = true;
  score_.start(known.program->length());
  known.moves = std::move(plan.moves);
  known.makes_dropped = steps_that_make_dropped(*known.program, known.moves);
  known.cost = plan.cost;
  if (followed_ == &known) followed_ = nullptr;  // the program has not followed the new schedule yet
  enter(known, step_, births_before_);
}

void Planner::drop(const KnownProgram& known) {
  if (known.placed)
    std::erase_if(places_, [&known](const auto& entry) { return entry.second.known == &known; });
  if (followed_ == &known) followed_ = nullptr;
  if (known_ == &known) known_ = nullptr;
  programs_.remove_if([&known](const KnownProgram& each) { return &each == &known; });
}

}  // namespace innkeeper::plan
