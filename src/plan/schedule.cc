#include "plan/schedule.h"

#include <algorithm>

#include "plan/cover.h"
#include "plan/gaps.h"

namespace innkeeper::plan {
namespace {

// Operators ahead of its use that a copy starts at most: nothing takes longer, and looking for room ends.
constexpr int64_t kLead = 4096;

class Timetable {
 public:
  Timetable(const Uses& uses, const std::vector<size_t>& gaps, Bytes room)
      : uses_(uses), spare_(uses.alive.size()) {
    for (const size_t gap : gaps) leave(uses.gaps[gap]);
    sum_up(spare_);
    for (size_t step = 0; step < spare_.size(); ++step) spare_[step] += room.count() - uses.alive[step];
    std::vector<Gap> returning;
    for (const size_t gap : gaps)
      if (uses.gaps[gap].returns) returning.push_back(uses.gaps[gap]);
    // Those that are used first start first, so that a link brings them in the order of their uses.
    std::sort(returning.begin(), returning.end(), [this](const Gap& a, const Gap& b) {
      return std::pair(a.end % uses_.length, a.block) < std::pair(b.end % uses_.length, b.block);
    });
    for (const Gap& gap : returning) arrive(gap);
    std::stable_sort(made_.moves.begin(), made_.moves.end(), [](const Move& a, const Move& b) {
      return a.after != b.after ? a.after < b.after : a.arrives < b.arrives;
    });
  }

  Schedule take() { return std::move(made_); }

 private:
  int64_t& spare(int64_t step) { return spare_[static_cast<size_t>(step % uses_.length)]; }

  // Notes the change of what is elsewhere, from one step to the next.
  void leave(const Gap& gap) {
    add_difference(spare_, gap.begin, gap.end, uses_.blocks[gap.block].size);
    add(gap, gap.begin - 1, false);
  }

  // As soon as there is room from then on.
  void arrive(const Gap& gap) {
    const int64_t size = uses_.blocks[gap.block].size;
    const int64_t use = gap.end % uses_.length;
    const int64_t bound =
        std::max({earliest_, gap.begin - gap.end + use, use - std::min(uses_.length - 1, kLead)});
    int64_t start = use - 1;
    while (start > bound && spare(start + uses_.length) >= size) --start;
    for (int64_t step = start + 1; step < use; ++step) spare(step + uses_.length) -= size;
    earliest_ = start;
    add(gap, gap.end - use + start, true);
  }

  void add(const Gap& gap, int64_t after, bool arrives) {
    const Uses::Life& life = uses_.blocks[gap.block];
    Slot slot = life.slot;
    if (!slot.lasting) slot.number -= after / uses_.length * uses_.births;
    made_.moves.push_back({after % uses_.length, arrives, uses_.node, slot, Bytes(life.size), life.written});
    (arrives ? made_.arriving : made_.leaving) += Bytes(life.size);
  }

  const Uses& uses_;
  std::vector<int64_t> spare_;  // bytes that nothing has, by step
  int64_t earliest_ = INT64_MIN;
  Schedule made_;
};

}  // namespace

Schedule make_schedule(const Uses& uses, Bytes room) {
  return Timetable(uses, cover(uses, room), room).take();
}

}  // namespace innkeeper::plan
