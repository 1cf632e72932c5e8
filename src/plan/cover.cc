#include "plan/cover.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/period_time.h"
#include "plan/profile.h"
#include "plan/short_steps.h"

namespace innkeeper::plan {
namespace {

// Bytes. A block up to this size costs a copy's latency for hardly any space: it leaves only if no other can.
constexpr int64_t kSmall = int64_t{64} << 10;

// Factor of the score of a gap that is far too short for its copies.
constexpr double kTooShort = 0.1;

// Stabbing queries: the gaps of movable blocks that cover a step. O((gaps found + 1) log n) for each query.
class Coverers {
 public:
  explicit Coverers(const Uses& uses) : ranges_(ranges_of(uses)), ends_(ends_of(ranges_)) {}

  template <typename Visit>
  void each(int64_t step, const Visit& visit) const {
    const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), step,
                                         [](int64_t at, const Range& range) { return at < range.first; });
    for (int64_t at = behind - ranges_.begin(); (at = ends_.last_above(step, 0, at)) >= 0;)
      visit(ranges_[static_cast<size_t>(at)].gap);
  }

 private:
  struct Range {
    int64_t first;
    int64_t last;  // One past the last step.
    size_t gap;
  };
  static std::vector<Range> ranges_of(const Uses& uses) {
    std::vector<Range> ranges;
    for (size_t gap = 0; gap < uses.gaps.size(); ++gap) {
      const Gap& it = uses.gaps[gap];
      if (uses.blocks[it.block].stays) continue;
      const int64_t end = std::min(it.end, it.begin + uses.length);  // each step once
      each_range(it.begin, end, uses.length, [&](int64_t first, int64_t last) {
        ranges.push_back({first, last, gap});
      });
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
    return ranges;
  }
  static Profile ends_of(const std::vector<Range>& ranges) {
    std::vector<int64_t> ends;
    for (const Range& range : ranges) ends.push_back(range.last);
    return Profile(ends);
  }

  std::vector<Range> ranges_;  // Sorted by first step.
  Profile ends_;
};

class Cover {
 public:
  Cover(const Uses& uses, Bytes space, const CoverWeights& weights)
      : uses_(uses),
        weights_(weights),
        excess_(beyond(uses, space.count())),
        short_(excess_.numbers()),
        coverers_(uses) {
    taken_.resize(uses.gaps.size());
    leaving_.resize(uses.written.size());
  }

  std::vector<size_t> find() {
    while (excess_.most() > 0) take_at(excess_.where());
    give_back();
    std::vector<size_t> kept;
    for (const auto& [score, gap] : scores_)
      if (taken_[gap]) kept.push_back(gap);
    return kept;
  }

 private:
  // Live bytes beyond the free space by step, at most the bytes that can leave there.
  static std::vector<int64_t> beyond(const Uses& uses, int64_t space) {
    std::vector<int64_t> movable(uses.alive.size());
    for (const Gap& gap : uses.gaps) {
      const Uses::Life& life = uses.blocks[gap.block];
      if (!life.stays) add_difference(movable, gap.begin, gap.end, life.size);
    }
    sum_up(movable);
    std::vector<int64_t> excess = uses.alive;
    for (size_t step = 0; step < excess.size(); ++step)
      excess[step] = std::min(excess[step] - space, movable[step]);
    return excess;
  }

  int64_t size_of(size_t gap) const { return uses_.blocks[uses_.gaps[gap].block].size; }

  template <typename Range>
  void each(size_t gap, const Range& range) const {
    each_range(uses_.gaps[gap].begin, uses_.gaps[gap].end, uses_.length, range);
  }

  // Whether the weights count a copy out for the gap.
  bool goes_out(const Gap& gap) const {
    return weights_.out == CoverWeights::Out::fresh
               ? gap.fresh
               : uses_.written[gap.version] && leaving_[gap.version] == 0;
  }

  double cost_of(size_t gap) const {
    const Gap& it = uses_.gaps[gap];
    const double copies = it.returns ? (goes_out(it) ? 2 : 1) : goes_out(it) ? weights_.one_way : 0;
    const auto size = static_cast<double>(size_of(gap));
    return std::max(copies, 0.01) * (size + kLatency) / size;
  }

  // Bytes that kernels touch from one step to a later one, also in a later period.
  double touched(int64_t from, int64_t to) const {
    const auto before = [&](int64_t step) {
      return step / uses_.length * uses_.touched.back() +
             uses_.touched[static_cast<size_t>(step % uses_.length)];
    };
    return static_cast<double>(before(to) - before(from));
  }

  // Factor of the score, up to 1: the time for the copies over the time that they need. The copy out runs
  // before the next short step, the copy in after the last one.
  double ease_of(size_t gap) const {
    const Gap& it = uses_.gaps[gap];
    const int64_t first = std::min(next_short(it.begin), it.end);
    const int64_t last = std::max(behind_short(it.end), first);
    const double need = weights_.patience * slower(uses_.speed) * static_cast<double>(size_of(gap));
    const auto part = [need](double time) { return std::clamp(time / need, kTooShort, 1.0); };
    return (goes_out(it) ? part(touched(it.begin, first)) : 1) *
           (it.returns ? part(touched(last, it.end)) : 1);
  }

  // The first short step from this one on. Requires: a step is short.
  int64_t next_short(int64_t step) const {
    const int64_t at = step % uses_.length;
    const int64_t found = short_.next(at);
    return step - at + (found < uses_.length ? found : uses_.length + short_.next(0));
  }
  // The step after the last short step before this one.
  int64_t behind_short(int64_t step) const {
    const int64_t at = step % uses_.length;
    const int64_t found = short_.last_before(at);
    return step - at + 1 + (found >= 0 ? found : short_.last_before(uses_.length) - uses_.length);
  }

  // Takes gaps until the step has no excess.
  void take_at(int64_t step) {
    std::vector<std::pair<double, size_t>> candidates;
    coverers_.each(step, [&](size_t gap) {
      if (taken_[gap]) return;
      int64_t steps = 0;
      each(gap, [&](int64_t first, int64_t last) { steps += short_.count(first, last); });
      double score = std::pow(static_cast<double>(steps), weights_.steps) / cost_of(gap) * ease_of(gap);
      if (size_of(gap) <= kSmall) score /= 1e6;
      candidates.emplace_back(-score, gap);
    });
    std::sort(candidates.begin(), candidates.end());
    for (const auto& [score, gap] : candidates) {
      take(gap, -size_of(gap));
      relieve(gap);
      taken_[gap] = true;
      ++leaving_[uses_.gaps[gap].version];
      scores_.emplace_back(-score, gap);
      if (excess_.most(step, step + 1) <= 0) return;
    }
  }

  void take(size_t gap, int64_t bytes) {
    each(gap, [&](int64_t first, int64_t last) { excess_.add(first, last, bytes); });
  }

  void relieve(size_t gap) {
    each(gap, [&](int64_t first, int64_t last) { short_.relieve(first, last, size_of(gap)); });
  }

  // Reverse deletion: gaps without which all steps are covered are given back, those of the lowest score
  // first.
  void give_back() {
    std::vector<std::pair<double, size_t>> worst_first = scores_;
    std::sort(worst_first.begin(), worst_first.end());
    for (const auto& [score, gap] : worst_first) {
      int64_t most = INT64_MIN / 2;
      each(gap, [&](int64_t first, int64_t last) { most = std::max(most, excess_.most(first, last)); });
      const int64_t times = (uses_.gaps[gap].end - uses_.gaps[gap].begin - 1) / uses_.length + 1;
      if (most + times * size_of(gap) > 0) continue;
      take(gap, size_of(gap));
      taken_[gap] = false;
      --leaving_[uses_.gaps[gap].version];
    }
  }

  const Uses& uses_;
  const CoverWeights& weights_;
  Profile excess_;
  ShortSteps short_;  // Steps with excess; not maintained by give_back().
  const Coverers coverers_;
  std::vector<bool> taken_;                        // By gap.
  std::vector<int> leaving_;                       // Number of taken gaps by version.
  std::vector<std::pair<double, size_t>> scores_;  // Score and gap, in the order of taking.
};

}  // namespace

std::vector<size_t> cover(const Uses& uses, Bytes space, const CoverWeights& weights) {
  return Cover(uses, space, weights).find();
}

}  // namespace innkeeper::plan
