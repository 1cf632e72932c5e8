#include "plan/gaps.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace innkeeper::plan {
namespace {

// Bytes that kernels could have touched while one of them is launched.
constexpr int64_t kLaunch = int64_t{8} << 20;

struct Use {
  int64_t step = 0;
  bool write = false;
};

// Rounds that a block lingers at most behind its last use. What dies later is no block of the round, but an
// old one whose number is as many rounds off.
constexpr int64_t kLingers = 2;

struct Found {
  std::vector<Use> uses;
  int64_t last = 0;   // of the uses
  int64_t dies = -1;  // behind this step
};

int64_t floor_of(int64_t number, int64_t by) { return (number >= 0 ? number : number - by + 1) / by; }

// Rounds ago that a slot's block was made.
int64_t age_of(const Slot& slot, int64_t births) {
  return slot.lasting || births == 0 ? 0 : -floor_of(slot.number - 1, births);
}

class Reader {
 public:
  Reader(const Program& program, NodeId node) : program_(program) {
    made_.node = node;
    made_.length = program.length();
    made_.births = program.births;
    made_.alive.resize(static_cast<size_t>(made_.length));
    for (int64_t step = 0; step < made_.length; ++step) {
      int64_t bytes = kLaunch;
      if (program.steps[static_cast<size_t>(step)].node == node) {
        for (const Program::Use& use : program.uses_of(step)) bytes += note(use, step);
      }
      made_.touched.push_back(bytes);
    }
    made_.touched.push_back(0);
    for (int64_t sum = 0; int64_t & bytes : made_.touched) sum += std::exchange(bytes, sum);
    for (const Program::Death& death : program.deaths) {
      const auto found = passing_.find(own_number(death.slot));
      if (found != passing_.end())
        die(found_[found->second], death.after + age_of(death.slot, program.births) * made_.length);
    }
    made_.wanted = made_.alive;
    for (size_t block = 0; block < found_.size(); ++block) live(block);
    sum_up(made_.alive);
    sum_up(made_.wanted);
  }

  Uses take() { return std::move(made_); }

 private:
  int64_t own_number(const Slot& slot) const {
    return slot.number + age_of(slot, program_.births) * program_.births;
  }

  void die(Found& block, int64_t step) const {
    if (step < block.last || step / made_.length > block.last / made_.length + kLingers) return;
    block.dies = block.dies < 0 ? step : std::min(block.dies, step);
  }

  int64_t note(const Program::Use& use, int64_t step) {
    auto& known = use.slot.lasting ? lasting_ : passing_;
    const Slot own{own_number(use.slot), use.slot.lasting};
    const auto [at, is_new] = known.try_emplace(own.number, found_.size());
    if (is_new) {
      found_.emplace_back();
      made_.blocks.push_back({.slot = own});
    }
    Uses::Life& life = made_.blocks[at->second];
    life.size = std::max(life.size, round_up(use.size).count());
    life.stays |= use.stays;
    life.written |= use.write || !own.lasting;
    const int64_t when = step + age_of(use.slot, program_.births) * made_.length;
    Found& block = found_[at->second];
    block.uses.push_back({when, use.write});
    block.last = std::max(block.last, when);
    return use.size.count();
  }

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
    add_difference(made_.wanted, first, lasts ? gone : last + 1, life.size);
    for (size_t i = 0; i < found.uses.size(); ++i) {
      const bool is_last = i + 1 == found.uses.size();
      const int64_t begin = found.uses[i].step + 1;
      const int64_t end = !is_last ? found.uses[i + 1].step : lasts ? first + made_.length : gone;
      const bool dirty = !lasts || found.uses[i].write;
      if (begin < end) made_.gaps.push_back({block, begin, end, !is_last || lasts, dirty});
    }
  }

  const Program& program_;
  Uses made_;
  std::vector<Found> found_;
  std::unordered_map<int64_t, size_t> lasting_;  // by name
  std::unordered_map<int64_t, size_t> passing_;  // by number in the round that makes it
};

}  // namespace

Uses uses_at(const Program& program, NodeId node) { return Reader(program, node).take(); }

}  // namespace innkeeper::plan
