#include "plan/planner.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/log.h"
#include "plan/bound.h"
#include "plan/recompute.h"

namespace innkeeper::plan {

// ---------------------------------------------------------------- names

Name Planner::meet(Block* block) {
  const Name name = history_.name();
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
  history_.died(name);
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
  history_.ended(node, touches);
  const int64_t length = finder_.look(history_);
  postponed_ = false;
  if (!arriving_.empty()) {
    std::erase_if(arriving_, [&](const Due& due) {
      return std::any_of(touches.begin(), touches.end(),
                         [&](const Touch& touch) { return touch.block == due.name; });
    });
  }
  if (known_ != nullptr) {
    if (known_->program.is_step(step_, births_before_, history_, history_.end() - 1)) return order_step();
    diverge();
  }
  rejoin();
  if (known_ == nullptr && length != 0) learn(length);
}

void Planner::order_step() {
  const std::vector<Move>& moves = known_->moves;
  for (; move_ < moves.size() && moves[move_].after == step_; ++move_) {
    auto& due = moves[move_].arrives ? arriving_ : leaving_;
    due.push_back({moves[move_].node, moves[move_].slot.name(births_before_), moves[move_].drops});
  }
  if (++step_ == known_->program.length()) end_round();
}

void Planner::end_round() {
  if (whole_) {
    ++rounds_;
    cost_ = known_->cost;
    followed_ = known_;
  }
  const bool again = room_changed(*known_) || (steady_ && learn_what_lacks(*known_));
  if (again) {
    followed_ = nullptr;  // nobody has followed the new schedule yet
    (void)schedule(*known_);
  }
  const bool steady = whole_ && !again;
  enter(*known_, 0, births_before_ + known_->program.births);
  steady_ = steady;
}

// What was evicted without a plan in a whole round says how much room is lacking. (A round whose schedule is
// new begins with other blocks at the node than those after it, so it says nothing.) Where a schedule for
// less room moves no less in all, the one before is taken for good: it was not the room.
bool Planner::learn_what_lacks(Known& known) {
  if (known.scheduled >= kSchedules) return false;
  int64_t unplanned = 0;
  for (const int64_t bytes : unplanned_) unplanned += bytes;
  if (unplanned == 0) {
    known.least_moved = INT64_MAX;
    return false;
  }
  const int64_t moved = known.cost.leaving.count() * known.cost.times + unplanned;
  if (moved >= known.least_moved) {
    known.scheduled = kSchedules;
    return std::exchange(known.lacking, known.best) != known.best;
  }
  known.least_moved = moved;
  known.best = known.lacking;
  for (size_t i = 0; i < kMaxNodes; ++i)
    known.lacking[i] += std::min(unplanned_[i], known.room[i] / kLackShare);
  ++known.scheduled;
  return true;
}

// The engine has another room than when the schedule was made: a budget was set, something was pinned,
// another program came or went. Looked for in each round, and the less often the more often it happened.
bool Planner::room_changed(Known& known) {
  if (rounds_ < known.settles_at) return false;
  bool changed = false;
  for (const NodeId node : known.program.nodes()) {
    const int64_t before = known.room[index_of(node)];
    changed |= std::abs(room_(node).count() - before) > before / kLackShare;
  }
  if (!changed) return false;
  known.settles_at = rounds_ + (int64_t{1} << std::min<int64_t>(known.changes++, 10));
  known.lacking.fill(0);
  known.best.fill(0);
  known.least_moved = INT64_MAX;
  known.scheduled = 0;
  return true;
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

void Planner::interrupt() {
  known_ = nullptr;
  leaving_.clear();
  arriving_.clear();
  unplanned_.fill(0);
  for (Known& known : programs_) {
    known.lacking.fill(0);
    known.best.fill(0);
    known.least_moved = INT64_MAX;
    known.scheduled = 0;
    known.settles_at = 0;
    known.room.fill(0);  // so the next round is scheduled anew
  }
}

void Planner::unplanned(NodeId node, Bytes size) {
  if (known_ != nullptr) {
    unplanned_[index_of(node)] += size.count();
  } else {  // what was refused since it fits does not any more
    refused_until_ = std::min(refused_until_, history_.end() + std::max(refused_, kShort));
  }
}

// ---------------------------------------------------------------- orders

bool Planner::next(Order& order) {
  while (!leaving_.empty() || (!arriving_.empty() && !postponed_)) {
    const bool arrives = leaving_.empty();
    auto& due = arrives ? arriving_ : leaving_;
    given_ = due.front();
    due.pop_front();
    order = {block_of(given_.name), given_.node, arrives, given_.drops};
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
  int64_t operation = history_.end() - 1;
  for (int64_t i = 0; i < kJoined; ++i, --operation, --step) {
    if (operation < history_.begin()) return false;
    if (step < 0) {
      step += known.program.length();
      births_before -= known.program.births;
    }
    if (!known.program.is_step(step, births_before, history_, operation)) return false;
  }
  return true;
}

void Planner::rejoin() {
  // Not equal_range(), which walks through all that are equal.
  const uint64_t key = history_.at(history_.end() - 1).key;
  auto place = places_.find(key);
  for (int tries = 0; place != places_.end() && place->first == key && tries < kPlaces; ++place, ++tries) {
    Known& known = *place->second.known;
    const int64_t step = place->second.step;
    const int64_t births_before = history_.births() - known.program.steps[static_cast<size_t>(step)].births;
    if (!was(known, step, births_before)) continue;
    const bool last_step = step + 1 == known.program.length();
    return enter(known, last_step ? 0 : step + 1, births_before + (last_step ? known.program.births : 0));
  }
}

void Planner::learn(int64_t length) {
  if (history_.end() < refused_until_) return;
  std::optional<Program> found = make_program(history_, length);
  if (!found) return refuse(length);
  Known& known = programs_.emplace_front();
  known.program = std::move(*found);
  known.cost.operators = length;
  if (length < kShort) {
    known.cost.times = (kShort + length - 1) / length;
    known.program = repeated(known.program, known.cost.times);
  }
  for (const NodeId node : known.program.nodes())
    known.touched[index_of(node)] = known.program.touched_at(node);
  if (!schedule(known)) {  // all of it fits: nothing is to move
    programs_.pop_front();
    return refuse(length);
  }
  for (int64_t step = 0; step < known.program.length(); ++step) {
    if (const auto key = known.program.key_of(step)) places_.emplace(*key, Place{&known, step});
  }
  if (programs_.size() > kKnown) {
    const Known* oldest = &programs_.back();
    std::erase_if(places_, [oldest](const auto& entry) { return entry.second.known == oldest; });
    if (followed_ == oldest) followed_ = nullptr;
    programs_.pop_back();
  }
  enter(known, 0, history_.births());
}

// A round that is none, or that fits, is looked at again after a while, and the later the more often it was.
void Planner::refuse(int64_t length) {
  refusals_ = length == refused_ ? std::min(refusals_ + 1, 16) : 0;
  refused_ = length;
  refused_until_ = history_.end() + (std::max(length, kShort) << refusals_);
  finder_.refuse();
}

std::vector<Moved> Planner::moved() const {
  if (followed_ == nullptr) return {};
  std::unordered_map<Block*, Moved> found;
  for (const Move& move : followed_->moves) {
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

namespace {

// That a link takes for so many bytes; 0 where nobody knows.
double seconds(Bytes size, double link) { return link > 0 ? static_cast<double>(size.count()) / link : 0; }

std::string on_link(Bytes size, double link) {
  if (link <= 0) return "";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), " (%.2f ms on its link)", 1e3 * seconds(size, link));
  return text.data();
}

}  // namespace

// False if nothing is to move.
bool Planner::schedule(Known& known) {
  known.moves.clear();
  known.cost = {.operators = known.cost.operators, .times = known.cost.times};
  for (const NodeId node : known.program.nodes()) {
    const Bytes whole = room_(node);
    const Bytes room = whole - Bytes(known.lacking[index_of(node)]);
    known.room[index_of(node)] = whole.count();
    if (whole <= Bytes(0)) continue;  // none is wanted
    const AboutNode node_is = about_ ? about_(node) : AboutNode{};
    const Uses uses = uses_at(known.program, node, slower(node_is.speed));
    const Bytes bound = live_excess(uses, whole);
    known.cost.bound += bound;
    known.cost.least_copying = std::max(known.cost.least_copying, seconds(bound, node_is.speed.link));
    const Bytes missing = shortage(uses, whole);
    known.cost.shortage += missing;
    if (room <= Bytes(0) || known.touched[index_of(node)] <= room) continue;  // none is left, or all fits
    Schedule made =
        node_is.drops ? schedule_with_remade(known.program, uses, room) : make_schedule(uses, room);
    known.moves.insert(known.moves.end(), made.moves.begin(), made.moves.end());
    known.cost.arriving += Bytes(made.arriving.count() / known.cost.times);
    known.cost.leaving += Bytes(made.leaving.count() / known.cost.times);
    Bytes dropped{0};
    for (const Move& move : made.moves)
      if (move.drops) dropped += Bytes(move.size.count() / known.cost.times);
    if (made.moves.empty() || !log_enabled(LogLevel::info)) continue;
    const std::string again =
        dropped == Bytes(0) ? "" : ", and " + to_string(dropped) + " are dropped and computed again";
    log(LogLevel::info,
        "planned: a round of " + std::to_string(known.program.length()) + " operators, in which " +
            to_string(made.arriving) + " arrive at " + node_is.name + " and " + to_string(made.leaving) +
            " leave it" + again + on_link(std::max(made.arriving, made.leaving), node_is.speed.link) +
            "; nothing would, with " + to_string(missing) + " more than its " + to_string(whole));
  }
  std::stable_sort(known.moves.begin(), known.moves.end(),
                   [](const Move& a, const Move& b) { return a.after < b.after; });
  return !known.moves.empty();
}

}  // namespace innkeeper::plan
