#include "plan/gaps.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <unordered_map>
#include <utility>

namespace innkeeper::plan {
namespace {

struct Use {
  int64_t step = 0;
  bool write = false;
};

// Periods that a block lives at most after its last use. A block that is used or dies later is not made by
// each period. It is an old one whose number happens to be that many periods off, of a pool for example.
constexpr int64_t kLingers = 2;

struct Found {
  std::vector<Use> uses;
  int64_t last = 0;   // Step of the last use.
  int64_t dies = -1;  // Step after which the block dies; -1: unknown.
};

// Names blocks that do not last by the first period that uses them: the period that makes them, or, after
// more than kLingers periods without a use, the next period that uses them.
class Generations {
 public:
  struct AgedSlot {
    Slot slot;        // Name in the first period that uses the block.
    int64_t age = 0;  // Periods since then.
  };

  explicit Generations(const Program& program) : births_(program.births) {
    for (const Program::Use& use : program.uses)
      if (use.slot.age(births_) > 0) later_.push_back({number_of(use.slot), use.slot.age(births_), 0});
    std::sort(later_.begin(), later_.end());
    for (size_t i = 0; i < later_.size(); ++i) {
      const bool follows = i > 0 && later_[i - 1].number == later_[i].number;
      const int64_t before = follows ? later_[i - 1].age : 0;
      const int64_t first = follows ? later_[i - 1].first : 0;
      later_[i].first = later_[i].age - before > kLingers ? later_[i].age : first;
    }
  }

  AgedSlot of(const Slot& slot) const {
    const int64_t age = slot.age(births_);
    if (age <= 0) return {slot, age};
    const Later key{number_of(slot), age, INT64_MAX};
    const auto behind = std::upper_bound(later_.begin(), later_.end(), key);
    const bool known = behind != later_.begin() && std::prev(behind)->number == key.number;
    const int64_t since = age - (known ? std::prev(behind)->first : 0);
    return {{slot.number + since * births_, false}, since};
  }

 private:
  struct Later {
    int64_t number;  // Number of the block in the period that makes it.
    int64_t age;     // Periods from that one to a use.
    int64_t first;   // Age at which the uses without a pause longer than kLingers begin.
    auto operator<=>(const Later&) const = default;
  };

  int64_t number_of(const Slot& slot) const { return slot.number + slot.age(births_) * births_; }

  int64_t births_;
  std::vector<Later> later_;
};

class Reader {
 public:
  Reader(const Program& program, NodeId node, const Speed& speed) : generations_(program) {
    made_.node = node;
    made_.speed = speed;
    made_.length = program.length();
    made_.births = program.births;
    made_.alive.resize(static_cast<size_t>(made_.length));
    for (int64_t step = 0; step < made_.length; ++step) {
      if (program.steps[static_cast<size_t>(step)].node == node) {
        for (const Program::Use& use : program.uses_of(step)) note(use, step);
      }
      made_.touched.push_back(static_cast<int64_t>(program.touched_in(step, node, speed)));
    }
    made_.touched.push_back(0);
    for (int64_t sum = 0; int64_t & bytes : made_.touched) sum += std::exchange(bytes, sum);
    add_host(program);
    for (const Program::Death& death : program.deaths) {
      const auto [slot, age] = generations_.of(death.slot);
      const auto found = passing_.find(slot.number);
      if (found != passing_.end()) die(found_[found->second], death.after + age * made_.length);
    }
    made_.working_set = made_.alive;
    for (size_t block = 0; block < found_.size(); ++block) live(block);
    sum_up(made_.alive);
    sum_up(made_.working_set);
  }

  Uses take() { return std::move(made_); }

 private:
  void die(Found& block, int64_t step) const {
    if (step < block.last || step / made_.length > block.last / made_.length + kLingers) return;
    block.dies = block.dies < 0 ? step : std::min(block.dies, step);
  }

  void add_host(const Program& program) {
    const auto known = [](const Program::Step& step) { return step.host > 0; };
    if (std::none_of(program.steps.begin(), program.steps.end(), known)) return;
    for (const Program::Step& step : program.steps)
      made_.host.push_back(made_.speed.memory * static_cast<double>(step.host));
  }

  void note(const Program::Use& use, int64_t step) {
    auto& known = use.slot.lasting ? lasting_ : passing_;
    const auto [slot, age] = generations_.of(use.slot);
    const auto [at, is_new] = known.try_emplace(slot.number, found_.size());
    if (is_new) {
      found_.emplace_back();
      made_.blocks.push_back({.slot = slot});
    }
    Uses::Life& life = made_.blocks[at->second];
    life.size = std::max(life.size, round_up(use.size).count());
    life.stays |= use.stays;
    life.written |= use.write || is_born(life);
    const int64_t when = step + age * made_.length;
    Found& block = found_[at->second];
    block.uses.push_back({when, use.write});
    block.last = std::max(block.last, when);
  }

  static bool is_born(const Uses::Life& life) { return !life.slot.lasting && life.slot.number > 0; }

  void live(size_t block) {
    Found& found = found_[block];
    const Uses::Life& life = made_.blocks[block];
    std::stable_sort(found.uses.begin(), found.uses.end(),
                     [](const Use& a, const Use& b) { return a.step < b.step; });
    const int64_t first = found.uses.front().step;
    const int64_t last = found.uses.back().step;
    const bool lasts = life.slot.lasting;
    const int64_t gone = lasts ? first + made_.length : std::max(found.dies, last) + 1;
    add_difference(made_.alive, first, gone, life.size);
    add_difference(made_.working_set, first, lasts ? gone : last + 1, life.size);
    // Uses from a write on, so that the uses before a period's first write follow those after its last one.
    const size_t count = found.uses.size();
    size_t from = 0;
    while (lasts && from < count && !found.uses[from].write) ++from;
    from %= count;
    made_.written.push_back(is_born(life) || found.uses[from].write);
    for (size_t k = 0; k < count; ++k) {
      const size_t i = (from + k) % count;
      const bool is_last = i + 1 == count;
      const int64_t begin = found.uses[i].step + 1;
      const int64_t end = !is_last ? found.uses[i + 1].step : lasts ? first + made_.length : gone;
      if (k != 0 && found.uses[i].write) made_.written.push_back(true);
      const bool fresh = is_born(life) || found.uses[i].write;
      if (begin < end)
        made_.gaps.push_back({block, begin, end, !is_last || lasts, fresh, made_.written.size() - 1});
    }
  }

  const Generations generations_;
  Uses made_;
  std::vector<Found> found_;
  std::unordered_map<int64_t, size_t> lasting_;  // Index in found_ by name.
  std::unordered_map<int64_t, size_t> passing_;  // Index in found_ by number in the first period.
};

}  // namespace

Uses uses_at(const Program& program, NodeId node, const Speed& speed) {
  return Reader(program, node, speed).take();
}

}  // namespace innkeeper::plan
