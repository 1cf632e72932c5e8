#include "plan/cover.h"

#include <algorithm>
#include <utility>

namespace innkeeper::plan {
namespace {

// What is small costs a copy's latency for hardly any room: it leaves only where nothing else can.
constexpr int64_t kSmall = int64_t{64} << 10;
// Bytes that a link could have moved in the latency of a copy.
constexpr double kLatency = 512 << 10;

// What a block costs that leaves and never returns, of what it costs each way to leave and return: the link
// that it takes is idle while others return.
constexpr double kOneWay = 0.2;

// Bytes that kernels touch while a link moves one.
constexpr double kSlower = 50;
// Of the score that is left to a gap too short for its copies.
constexpr double kTooShort = 0.1;

// Bytes by step; adds to a range of steps, and knows the most of a range.
class Profile {
 public:
  explicit Profile(const std::vector<int64_t>& bytes) : count_(bytes.size()) {
    while (width_ < count_) width_ *= 2;
    most_.assign(2 * width_, INT64_MIN / 2);
    added_.assign(2 * width_, 0);
    for (size_t i = 0; i < count_; ++i) most_[width_ + i] = bytes[i];
    for (size_t node = width_ - 1; node > 0; --node)
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

  void add(int64_t first, int64_t last, int64_t bytes) {
    add(1, 0, width_, static_cast<size_t>(first), static_cast<size_t>(last), bytes);
  }
  int64_t most(int64_t first, int64_t last) const {
    return most(1, 0, width_, static_cast<size_t>(first), static_cast<size_t>(last));
  }
  int64_t most() const { return most_[1]; }
  // A step that has the most.
  int64_t where() const {
    size_t node = 1;
    while (node < width_) node = most_[2 * node] >= most_[2 * node + 1] ? 2 * node : 2 * node + 1;
    return static_cast<int64_t>(node - width_);
  }
  // For each step whether it has more than nothing, summed up: at i the number of those before i.
  std::vector<int64_t> positive() const {
    std::vector<int64_t> sums(count_ + 1);
    std::vector<std::pair<size_t, int64_t>> waiting{{1, 0}};
    while (!waiting.empty()) {
      const auto [node, above] = waiting.back();
      waiting.pop_back();
      if (most_[node] + above <= 0) continue;
      if (node >= width_) {
        sums[node - width_ + 1] = 1;
      } else {
        waiting.emplace_back(2 * node, above + added_[node]);
        waiting.emplace_back(2 * node + 1, above + added_[node]);
      }
    }
    for (size_t i = 1; i <= count_; ++i) sums[i] += sums[i - 1];
    return sums;
  }

 private:
  void add(size_t node, size_t from, size_t to, size_t first, size_t last, int64_t bytes) {
    if (last <= from || to <= first) return;
    if (first <= from && to <= last) {
      most_[node] += bytes;
      added_[node] += bytes;
      return;
    }
    const size_t middle = (from + to) / 2;
    add(2 * node, from, middle, first, last, bytes);
    add(2 * node + 1, middle, to, first, last, bytes);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }
  int64_t most(size_t node, size_t from, size_t to, size_t first, size_t last) const {
    if (last <= from || to <= first) return INT64_MIN / 2;
    if (first <= from && to <= last) return most_[node];
    const size_t middle = (from + to) / 2;
    return added_[node] +
           std::max(most(2 * node, from, middle, first, last), most(2 * node + 1, middle, to, first, last));
  }

  size_t count_;
  size_t width_ = 1;
  std::vector<int64_t> most_;   // below a node, with what was added there, without what was above
  std::vector<int64_t> added_;  // to all below a node
};

class Cover {
 public:
  Cover(const Uses& uses, Bytes room) : uses_(uses), excess_(beyond(uses, room.count())) {
    taken_.resize(uses.gaps.size());
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
  // What is alive beyond the room; where not all that can leave would be enough, as much as can.
  static std::vector<int64_t> beyond(const Uses& uses, int64_t room) {
    std::vector<int64_t> movable(uses.alive.size());
    for (const Gap& gap : uses.gaps) {
      const Uses::Life& life = uses.blocks[gap.block];
      if (!life.stays) add_difference(movable, gap.begin, gap.end, life.size);
    }
    sum_up(movable);
    std::vector<int64_t> excess = uses.alive;
    for (size_t step = 0; step < excess.size(); ++step)
      excess[step] = std::min(excess[step] - room, movable[step]);
    return excess;
  }

  int64_t size_of(size_t gap) const { return uses_.blocks[uses_.gaps[gap].block].size; }

  bool covers(const Gap& gap, int64_t step) const {
    const int64_t since = ((step - gap.begin) % uses_.length + uses_.length) % uses_.length;
    return gap.begin + since < gap.end;
  }

  template <typename Range>
  void each(size_t gap, const Range& range) const {
    each_range(uses_.gaps[gap].begin, uses_.gaps[gap].end, uses_.length, range);
  }

  double cost_of(size_t gap) const {
    const Gap& it = uses_.gaps[gap];
    const double copies = it.returns ? (it.dirty ? 2 : 1) : it.dirty ? kOneWay : 0;
    const auto size = static_cast<double>(size_of(gap));
    return std::max(copies, 0.01) * (size + kLatency) / size;
  }

  // What kernels touch from one step to a later one, round and round.
  double touched(int64_t from, int64_t to) const {
    const auto before = [&](int64_t step) {
      return step / uses_.length * uses_.touched.back() +
             uses_.touched[static_cast<size_t>(step % uses_.length)];
    };
    return static_cast<double>(before(to) - before(from));
  }

  // Whether there is time for the copies: out before the room is short, and in after it was.
  double ease_of(size_t gap, const std::vector<int64_t>& positive) const {
    const Gap& it = uses_.gaps[gap];
    const int64_t first = std::min(next_short(it.begin, positive), it.end);
    const int64_t last = std::max(behind_short(it.end, positive), first);
    const double need = kSlower * static_cast<double>(size_of(gap));
    const auto part = [need](double time) { return std::clamp(time / need, kTooShort, 1.0); };
    return (it.dirty ? part(touched(it.begin, first)) : 1) * (it.returns ? part(touched(last, it.end)) : 1);
  }

  // The first step from this one on in which the room is short. There is one in each round.
  int64_t next_short(int64_t step, const std::vector<int64_t>& positive) const {
    const int64_t at = step % uses_.length;
    const auto after = [&](int64_t sum) {
      return std::upper_bound(positive.begin(), positive.end(), sum) - positive.begin() - 1;
    };
    const int64_t found = after(positive[static_cast<size_t>(at)]);
    return step - at + (found < uses_.length ? found : uses_.length + after(0));
  }
  // Behind the last one before this one.
  int64_t behind_short(int64_t step, const std::vector<int64_t>& positive) const {
    const int64_t at = step % uses_.length;
    const auto up_to = [&](int64_t sum) {
      return std::lower_bound(positive.begin(), positive.end(), sum) - positive.begin();
    };
    const int64_t before = positive[static_cast<size_t>(at)];
    return step - at + (before > 0 ? up_to(before) : up_to(positive.back()) - uses_.length);
  }

  // Takes gaps until the step has no excess.
  void take_at(int64_t step) {
    const std::vector<int64_t> positive = excess_.positive();
    std::vector<std::pair<double, size_t>> candidates;
    for (size_t gap = 0; gap < uses_.gaps.size(); ++gap) {
      const Gap& it = uses_.gaps[gap];
      if (taken_[gap] || uses_.blocks[it.block].stays || !covers(it, step)) continue;
      int64_t steps = 0;
      each(gap, [&](int64_t first, int64_t last) {
        steps += positive[static_cast<size_t>(last)] - positive[static_cast<size_t>(first)];
      });
      double score = static_cast<double>(steps) / cost_of(gap) * ease_of(gap, positive);
      if (size_of(gap) <= kSmall) score /= 1e6;
      candidates.emplace_back(-score, gap);
    }
    std::sort(candidates.begin(), candidates.end());
    for (const auto& [score, gap] : candidates) {
      take(gap, -size_of(gap));
      taken_[gap] = true;
      scores_.emplace_back(-score, gap);
      if (excess_.most(step, step + 1) <= 0) return;
    }
  }

  void take(size_t gap, int64_t bytes) {
    each(gap, [&](int64_t first, int64_t last) { excess_.add(first, last, bytes); });
  }

  // Those that helped least for their cost go first.
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
    }
  }

  const Uses& uses_;
  Profile excess_;
  std::vector<bool> taken_;                        // by gap
  std::vector<std::pair<double, size_t>> scores_;  // of those that were taken, in that order
};

}  // namespace

std::vector<size_t> cover(const Uses& uses, Bytes room) { return Cover(uses, room).find(); }

}  // namespace innkeeper::plan
