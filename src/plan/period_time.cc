#include "plan/period_time.h"

#include <algorithm>
#include <utility>

#include "plan/two_clocks.h"

namespace innkeeper::plan {
namespace {

// Periods of the simulation. The first ones fill the links' queues; the last one stands for all later ones.
constexpr int kPeriods = 3;

class Run {
 public:
  Run(const Uses& uses, std::span<const PlannedTrip> trips, const std::vector<int64_t>& spare)
      : uses_(uses),
        trips_(trips),
        spare_(spare),
        clocks_(uses.host),
        goes_out_(uses.gaps.size()),
        there_at_(uses.gaps.size()) {
    std::vector<bool> leaves(uses.gaps.size());
    for (const PlannedTrip& trip : trips) {
      if (trip.arrives) {
        awaited_.emplace_back(uses.gaps[trip.gap].end % uses.length, trip.gap);
      } else {
        leaves[trip.gap] = true;
      }
    }
    std::sort(awaited_.begin(), awaited_.end());
    std::vector<bool> is_out(uses.written.size());
    for (size_t gap = 0; gap < uses.gaps.size(); ++gap) {
      const size_t version = uses.gaps[gap].version;
      if (!leaves[gap] || !uses.written[version] || is_out[version]) continue;
      is_out[version] = goes_out_[gap] = true;
    }
  }

  double time() {
    double before = 0;
    for (int period = 0; period < kPeriods; ++period) {
      before = now_;
      run();
    }
    return now_ - before;
  }

 private:
  void run() {
    auto awaited = awaited_.begin();
    auto trip = trips_.begin();
    for (int64_t step = 0; step < uses_.length; ++step) {
      for (; awaited != awaited_.end() && awaited->first == step; ++awaited)
        now_ = std::max(now_, there_at_[awaited->second]);
      const auto at = static_cast<size_t>(step);
      compute(at);
      for (; trip != trips_.end() && trip->after == step; ++trip) start(*trip);
    }
  }

  void compute(size_t step) {
    const auto kernels = static_cast<double>(uses_.touched[step + 1] - uses_.touched[step]);
    now_ = clocks_.start(step, with_space(spare_[step], now_)) + kernels;
  }

  void start(const PlannedTrip& trip) {
    const int64_t size = uses_.blocks[uses_.gaps[trip.gap].block].size;
    const double takes = slower(uses_.speed) * (static_cast<double>(size) + kLatency);
    if (trip.arrives) {
      const auto next = static_cast<size_t>((trip.after + 1) % uses_.length);
      in_free_ = with_space(spare_[next], std::max(in_free_, now_)) + takes;
      there_at_[trip.gap] = in_free_;
    } else if (goes_out_[trip.gap]) {
      out_free_ = std::max(out_free_, now_) + takes;
      out_.emplace_back(left_ += size, out_free_);
    }
  }

  // The earliest time, from `time` on, at which at most `bytes` bytes are on their way out.
  double with_space(int64_t bytes, double time) const {
    const int64_t gone = left_ - std::max<int64_t>(bytes, 0);
    if (gone <= 0) return time;
    const auto last = std::lower_bound(out_.begin(), out_.end(), gone,
                                       [](const auto& copy, int64_t sum) { return copy.first < sum; });
    return std::max(time, last->second);
  }

  const Uses& uses_;
  const std::span<const PlannedTrip> trips_;
  const std::vector<int64_t>& spare_;
  TwoClocks clocks_;
  std::vector<bool> goes_out_;                       // Whether a gap has a copy out; by gap.
  std::vector<double> there_at_;                     // End of the copy in; by gap.
  std::vector<std::pair<int64_t, size_t>> awaited_;  // Step and the gap that its operand returns from.
  std::vector<std::pair<int64_t, double>> out_;      // Bytes copied out so far, and the end of that copy.
  int64_t left_ = 0;
  double now_ = 0;
  double in_free_ = 0;
  double out_free_ = 0;
};

}  // namespace

double period_time(const Uses& uses, std::span<const PlannedTrip> trips, const std::vector<int64_t>& spare) {
  return Run(uses, trips, spare).time();
}

}  // namespace innkeeper::plan
