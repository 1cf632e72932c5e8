#include "plan/schedule.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace innkeeper::plan {
namespace {

// The round is gone through three times: the first fills the node, the second is what each round is like, the
// third says what is used after it.
constexpr int64_t kRounds = 3;
constexpr int64_t kNever = INT64_MAX;
// What is small costs a copy's latency for hardly any room: it leaves only where nothing else can.
constexpr int64_t kSmall = int64_t{64} << 10;
// Operators ahead of its use that a copy starts at most: nothing takes longer, and looking for room ends.
constexpr int64_t kLead = 4096;

struct Item {
  Slot slot;  // lasting, or by its number among all births of the three rounds
  int64_t size = 0;
  bool resident = false;
  bool born = false;
  bool stays = false;
  int64_t last_use = -1;
  int64_t next_use = kNever;
};

struct Use {
  size_t item = 0;
  int64_t next = kNever;  // when the item is used again
};

struct Left {
  size_t item = 0;
  int64_t last_use = 0;
  int64_t wanted = 0;  // its room, by this operator
};

struct Came {
  size_t item = 0;
  int64_t last_use = 0;
  int64_t use = 0;
};

// The rounds of one program at one node, one after another. Times count operators, over all rounds.
class Rounds {
 public:
  Rounds(const Program& program, NodeId node, Bytes room)
      : program_(program), node_(node), length_(program.length()), free_(room.count()) {
    lay_out();
    spare_.resize(static_cast<size_t>(length_));
    for (int64_t time = 0; time < kRounds * length_; ++time) run(time);
  }

  Schedule schedule();

 private:
  using Farthest = std::priority_queue<std::pair<int64_t, size_t>>;  // next use and item, some out of date

  size_t item_of(Slot slot, int64_t round, Bytes size);
  void lay_out();
  void run(int64_t time);
  void make_room(int64_t needed, int64_t time);
  int64_t& spare(int64_t time) { return spare_[static_cast<size_t>(time % length_)]; }
  Farthest& farthest_of(const Item& item) { return item.size <= kSmall ? small_ : large_; }
  bool counts(int64_t time) const { return time / length_ == 1; }
  Move move(size_t item, int64_t time, bool arrives) const;

  const Program& program_;
  const NodeId node_;
  const int64_t length_;
  int64_t free_;
  std::vector<Item> items_;
  std::unordered_map<int64_t, size_t> lasting_;  // items by name
  std::unordered_map<int64_t, size_t> passing_;  // by number
  std::vector<Use> uses_;                        // of all rounds
  std::vector<size_t> first_use_;                // by time
  std::vector<std::vector<size_t>> deaths_;      // items, by time
  Farthest large_;
  Farthest small_;
  std::vector<int64_t> spare_;  // bytes of the second round's operators that nothing has
  std::vector<Left> left_;
  std::vector<Came> came_;
};

size_t Rounds::item_of(Slot slot, int64_t round, Bytes size) {
  if (!slot.lasting) slot.number += round * program_.births;
  auto& known = slot.lasting ? lasting_ : passing_;
  const auto [found, is_new] = known.try_emplace(slot.number, items_.size());
  if (is_new) items_.push_back({.slot = slot, .size = round_up(size).count()});
  return found->second;
}

void Rounds::lay_out() {
  const auto times = static_cast<size_t>(kRounds * length_);
  deaths_.resize(times);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int64_t step = 0; step < length_; ++step) {
      first_use_.push_back(uses_.size());
      if (program_.steps[static_cast<size_t>(step)].node != node_) continue;
      for (const Program::Use& use : program_.uses_of(step)) {
        uses_.push_back({item_of(use.slot, round, use.size), kNever});
        items_[uses_.back().item].stays |= use.stays;
      }
    }
    for (const Program::Death& death : program_.deaths) {
      const auto found = passing_.find(death.slot.number + round * program_.births);
      if (found != passing_.end())
        deaths_[static_cast<size_t>(round * length_ + death.after)].push_back(found->second);
    }
  }
  first_use_.push_back(uses_.size());
  std::vector<int64_t> next(items_.size(), kNever);
  for (size_t time = times; time-- > 0;) {
    for (size_t i = first_use_[time]; i < first_use_[time + 1]; ++i) uses_[i].next = next[uses_[i].item];
    for (size_t i = first_use_[time]; i < first_use_[time + 1]; ++i)
      next[uses_[i].item] = static_cast<int64_t>(time);
  }
}

void Rounds::run(int64_t time) {
  const auto at = static_cast<size_t>(time);
  int64_t needed = 0;
  for (size_t i = first_use_[at]; i < first_use_[at + 1]; ++i) {
    Item& item = items_[uses_[i].item];
    if (!item.resident) {
      needed += item.size;
      item.resident = true;
      if (item.born && counts(time)) came_.push_back({uses_[i].item, item.last_use, time});
    }
    item.born = true;
    item.last_use = time;
    item.next_use = uses_[i].next;
  }
  make_room(needed, time);
  free_ -= needed;
  for (size_t i = first_use_[at]; i < first_use_[at + 1]; ++i) {
    const Item& item = items_[uses_[i].item];
    if (!item.stays) farthest_of(item).emplace(item.next_use, uses_[i].item);
  }
  if (counts(time)) spare(time) = free_;
  for (const size_t dead : deaths_[at]) {
    if (items_[dead].resident) free_ += items_[dead].size;
    items_[dead].resident = false;
  }
}

void Rounds::make_room(int64_t needed, int64_t time) {
  for (Farthest* farthest : {&large_, &small_}) {
    while (free_ < needed && !farthest->empty()) {
      const auto [next_use, index] = farthest->top();
      farthest->pop();
      Item& item = items_[index];
      if (!item.resident || item.next_use != next_use || item.last_use == time) continue;
      item.resident = false;
      free_ += item.size;
      if (counts(time)) left_.push_back({index, item.last_use, time});
    }
  }
}

Move Rounds::move(size_t item, int64_t time, bool arrives) const {
  Slot slot = items_[item].slot;
  if (!slot.lasting) slot.number -= time / length_ * program_.births;
  return {time % length_, arrives, node_, slot, Bytes(items_[item].size)};
}

Schedule Rounds::schedule() {
  Schedule made;
  // Changes of the room from one operator to the next, round and round.
  std::vector<int64_t> change(static_cast<size_t>(length_));
  const auto at = [&](int64_t time) -> int64_t& { return change[static_cast<size_t>(time % length_)]; };
  for (const Left& left : left_) {
    const int64_t size = items_[left.item].size;
    const int64_t from = std::max(left.last_use, left.wanted - length_) + 1;
    at(from) += size;
    at(left.wanted) -= size;
    if (from % length_ > left.wanted % length_) change[0] += size;  // it goes over the end of the round
    made.moves.push_back(move(left.item, left.last_use, false));
    made.leaving += Bytes(size);
  }
  for (int64_t time = 0, more = 0; time < length_; ++time) spare(time) += more += at(time);
  // Those that are used first start first, so that a link brings them in the order of their uses.
  int64_t earliest = 0;
  for (const Came& came : came_) {
    const int64_t size = items_[came.item].size;
    const int64_t bound = std::max({earliest, came.last_use + 1, came.use - std::min(length_, kLead)});
    int64_t start = came.use - 1;
    while (start > bound && spare(start) >= size) --start;
    for (int64_t time = start + 1; time < came.use; ++time) spare(time) -= size;
    earliest = start;
    made.moves.push_back(move(came.item, start, true));
    made.arriving += Bytes(size);
  }
  std::stable_sort(made.moves.begin(), made.moves.end(), [](const Move& a, const Move& b) {
    return a.after != b.after ? a.after < b.after : a.arrives < b.arrives;
  });
  return made;
}

}  // namespace

Schedule make_schedule(const Program& program, NodeId node, Bytes room) {
  return Rounds(program, node, room).schedule();
}

}  // namespace innkeeper::plan
