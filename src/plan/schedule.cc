#include "plan/schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/gaps.h"
#include "plan/period_time.h"
#include "plan/profile.h"

namespace innkeeper::plan {
namespace {

// A fetch is issued at most this many operators ahead of its use: no copy takes longer.
constexpr int64_t kLead = 4096;

// None of these is the best for all programs. Those with a smaller exponent of steps prefer cheap gaps to
// long ones.
constexpr CoverWeights kTried[] = {
    {.out = CoverWeights::Out::fresh},
    {.out = CoverWeights::Out::first},
    {.out = CoverWeights::Out::fresh, .one_way = 0.05, .patience = 2, .steps = 0.7},
    {.out = CoverWeights::Out::first, .one_way = 0.05, .patience = 2, .steps = 0.7},
};

// The issue points of the evictions and fetches of the chosen gaps. A fetch is issued as soon as there is
// free space for it from then on.
class Timetable {
 public:
  Timetable(const Uses& uses, const std::vector<size_t>& gaps, Bytes space)
      : uses_(uses), lack_(lack(uses, gaps, space)), back_(uses.gaps.size()) {
    for (const size_t gap : gaps) add(gap, uses.gaps[gap].begin - 1, false);
    std::vector<size_t> returning;
    for (const size_t gap : gaps)
      if (uses.gaps[gap].returns) returning.push_back(gap);
    // Fetches are placed in the order of their uses, so that a link copies them in that order.
    std::sort(returning.begin(), returning.end(), [this](size_t a, size_t b) { return order(a) < order(b); });
    for (const size_t gap : returning) arrive(gap);
    std::stable_sort(trips_.begin(), trips_.end(), [](const PlannedTrip& a, const PlannedTrip& b) {
      return a.after != b.after ? a.after < b.after : a.arrives < b.arrives;
    });
  }

  double time() const {
    std::vector<int64_t> spare = lack_.numbers();
    for (int64_t& bytes : spare) bytes = -bytes;
    return period_time(uses_, trips_, spare);
  }

  Schedule schedule() const {
    Schedule made;
    for (const PlannedTrip& trip : trips_) {
      const Gap& gap = uses_.gaps[trip.gap];
      const Uses::Life& life = uses_.blocks[gap.block];
      const Slot slot = life.slot.later(trip.periods, uses_.births);
      made.moves.push_back({trip.after, trip.arrives, uses_.node, slot, Bytes(life.size), life.written});
      (trip.arrives ? made.arriving : made.leaving) += Bytes(life.size);
    }
    made.away = away();
    return made;
  }

 private:
  // Bytes by step that are lacking while each block is away for its whole gap.
  static std::vector<int64_t> lack(const Uses& uses, const std::vector<size_t>& gaps, Bytes space) {
    std::vector<int64_t> away(uses.alive.size());
    for (const size_t gap : gaps)
      add_difference(away, uses.gaps[gap].begin, uses.gaps[gap].end, size_of(uses, gap));
    sum_up(away);
    for (size_t step = 0; step < away.size(); ++step)
      away[step] = uses.alive[step] - space.count() - away[step];
    return away;
  }

  static int64_t size_of(const Uses& uses, size_t gap) { return uses.blocks[uses.gaps[gap].block].size; }

  std::pair<int64_t, size_t> order(size_t gap) const {
    return {uses_.gaps[gap].end % uses_.length, uses_.gaps[gap].block};
  }

  std::vector<Absence> away() const {
    std::vector<size_t> gaps;
    for (const PlannedTrip& trip : trips_)
      if (!trip.arrives) gaps.push_back(trip.gap);
    std::sort(gaps.begin(), gaps.end());  // Gaps of one version are adjacent.
    std::vector<Absence> all;
    for (size_t i = 0; i < gaps.size(); ++i) {
      const Gap& gap = uses_.gaps[gaps[i]];
      const Uses::Life& life = uses_.blocks[gap.block];
      all.push_back({.slot = life.slot,
                     .size = Bytes(life.size),
                     .begin = gap.begin,
                     .back = gap.returns ? back_[gaps[i]] : gap.end - 1,
                     .use = gap.returns ? gap.end : gap.end - 1,
                     .returns = gap.returns,
                     .version = gap.version,
                     .written = uses_.written[gap.version],
                     .last = i + 1 == gaps.size() || uses_.gaps[gaps[i + 1]].version != gap.version});
    }
    return all;
  }

  // Issues the gap's fetch as soon as there is free space for it from then on.
  void arrive(size_t gap) {
    const Gap& it = uses_.gaps[gap];
    const int64_t size = size_of(uses_, gap);
    const int64_t use = it.end % uses_.length;
    const int64_t bound =
        std::max({earliest_, it.begin - it.end + use, use - std::clamp(uses_.length - 1, int64_t{1}, kLead)});
    earliest_ = std::max(bound, last_without(size, bound + 1, use));
    each_range(earliest_ + 1 + uses_.length, use + uses_.length, uses_.length,
               [&](int64_t first, int64_t last) { lack_.add(first, last, size); });
    back_[gap] = it.end - use + earliest_;
    add(gap, back_[gap], true);
  }

  // The last of these steps without free space for `size` bytes. Steps below 0 are of the period before.
  int64_t last_without(int64_t size, int64_t first, int64_t last) const {
    const int64_t found = lack_.last_above(-size, std::max<int64_t>(first, 0), last);
    if (found >= 0 || first >= 0) return found >= 0 ? found : first - 1;
    const int64_t before = lack_.last_above(-size, first + uses_.length, uses_.length);
    return before >= 0 ? before - uses_.length : first - 1;
  }

  // `after`: step, counted from the period that makes the block.
  void add(size_t gap, int64_t after, bool arrives) {
    trips_.push_back({after % uses_.length, arrives, gap, after / uses_.length});
  }

  const Uses& uses_;
  Profile lack_;  // Lacking bytes by step; below 0: spare bytes.
  int64_t earliest_ = INT64_MIN;
  std::vector<PlannedTrip> trips_;
  std::vector<int64_t> back_;  // Step after which the fetch is issued; by gap.
};

}  // namespace

Schedule make_schedule(const Uses& uses, Bytes space) { return make_schedule(uses, space, kTried); }

Schedule make_schedule(const Uses& uses, Bytes space, std::span<const CoverWeights> tried) {
  std::optional<Timetable> best;
  double shortest = 0;
  for (const CoverWeights& weights : tried) {
    const std::vector<size_t> gaps = cover(uses, space, weights);
    if (gaps.empty()) {  // No block has to move.
      Schedule none;
      none.time = period_time(uses, {}, std::vector<int64_t>(static_cast<size_t>(uses.length)));
      return none;
    }
    Timetable made(uses, gaps, space);
    const double time = made.time();
    if (best.has_value() && time >= shortest) continue;
    best.emplace(std::move(made));
    shortest = time;
  }
  if (!best.has_value()) return {};
  Schedule chosen = best->schedule();
  chosen.time = shortest;
  return chosen;
}

}  // namespace innkeeper::plan
