#include "replay/trips.h"

#include <algorithm>
#include <deque>

#include "base/check.h"
#include "sim/clock.h"

namespace innkeeper::replay {
namespace {

bool ever_there(const Course& course, size_t tensor) {
  return course.never_there.empty() || !course.never_there[tensor];
}

// Returns the bytes on the GPU while each operator runs.
std::vector<int64_t> occupied(const RecordedProgram& program, const Course& course) {
  std::vector<int64_t> change(program.kernels.size() + 1);
  for (size_t i = 0; i < program.tensors.size(); ++i) {
    const Tensor& tensor = program.tensors[i];
    if (!ever_there(course, i)) continue;
    change[index(tensor.born)] += tensor.bytes;
    change[index(tensor.died + 1)] -= tensor.bytes;
  }
  for (const TensorTrip& trip : course.trips) {
    const Tensor& tensor = program.tensors[trip.tensor];
    if (trip.keeps_memory) continue;
    change[index(trip.leaves == kNone ? tensor.born : trip.leaves + 1)] -= tensor.bytes;
    change[index(trip.returns == kNone ? tensor.died + 1 : trip.returns)] += tensor.bytes;
  }
  int64_t bytes = 0;
  for (int64_t& at : change) at = bytes += at;
  change.pop_back();
  return change;
}

class Simulation {
 public:
  Simulation(const RecordedProgram& program, const Course& course, const cost::LinkModel& link, Bytes space)
      : program_(program),
        course_(course),
        link_(link),
        free_(space.count()),
        born_(program.kernels.size()),
        gone_(program.kernels.size()),
        outgoing_(program.kernels.size()),
        incoming_(program.kernels.size()),
        wanted_(program.kernels.size()),
        out_done_(program.tensors.size()) {
    plan(space.count());
  }

  StepCost run() {
    std::vector<StepCost> ends;
    for (const Parts& step : program_.steps) {
      step_begin_ = step.begin;
      for (int64_t at = step.begin; at < step.end; ++at) operation(at);
      if (course_.host_seconds > 0) {
        host_begin_ = std::max(now_, out_free_);
        now_ = host_begin_ + course_.host_seconds;
      }
      ends.push_back({now_, Bytes(in_), Bytes(out_)});
    }
    const StepCost& last = ends[ends.size() - 2];
    const StepCost& before = ends[ends.size() - 4];
    const StepCost step{(last.seconds - before.seconds) / 2, Bytes((last.in - before.in).count() / 2),
                        Bytes((last.out - before.out).count() / 2)};
    // Copies that fall further behind in each step would determine the step's time in the end.
    return {std::max({step.seconds, static_cast<double>(step.in.count()) / link_.bandwidth,
                      static_cast<double>(step.out.count()) / link_.bandwidth}),
            step.in, step.out};
  }

 private:
  struct Release {
    double at = 0;
    int64_t bytes = 0;
  };

  // Decides when each trip is fetched, and which tensors come and go at each operator.
  void plan(int64_t space) {
    std::vector<int64_t> there = occupied(program_, course_);
    std::vector<size_t> order;
    for (size_t i = 0; i < course_.trips.size(); ++i) {
      const TensorTrip& trip = course_.trips[i];
      if (trip.returns != kNone) order.push_back(i);
      if (trip.leaves == kNone) continue;
      if (trip.copied) {
        outgoing_[index(trip.leaves)].push_back(i);
      } else if (!trip.keeps_memory) {
        gone_[index(trip.leaves)] += bytes_of(trip);
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return course_.trips[a].returns < course_.trips[b].returns; });
    for (const size_t i : order) {
      const TensorTrip& trip = course_.trips[i];
      int64_t at = trip.returns;
      const int64_t bytes = trip.keeps_memory ? 0 : bytes_of(trip);
      while (at > trip.from && there[index(at - 1)] + bytes <= space) there[index(--at)] += bytes;
      incoming_[index(at)].push_back(i);
      wanted_[index(trip.returns)].push_back(i);
    }
    arrived_.resize(course_.trips.size());
    lives();
  }

  void lives() {
    std::vector<bool> away_first(program_.tensors.size()), away_last(program_.tensors.size());
    for (const TensorTrip& trip : course_.trips) {
      if (trip.keeps_memory) continue;
      if (trip.leaves == kNone) away_first[trip.tensor] = true;
      if (trip.returns == kNone) away_last[trip.tensor] = true;
    }
    for (size_t i = 0; i < program_.tensors.size(); ++i) {
      const Tensor& tensor = program_.tensors[i];
      if (!ever_there(course_, i)) continue;
      if (!away_first[i]) born_[index(tensor.born)] += tensor.bytes;
      if (!away_last[i]) gone_[index(tensor.died)] += tensor.bytes;
    }
  }

  void operation(int64_t at) {
    const double before = now_;
    double start = claim(born_[index(at)], before);
    for (const size_t i : incoming_[index(at)]) fetch(i, at, before);
    for (const size_t i : wanted_[index(at)]) start = std::max(start, arrived_[i]);
    now_ = start + program_.kernels[index(at)];
    for (const size_t i : outgoing_[index(at)]) {
      const int64_t bytes = bytes_of(course_.trips[i]);
      out_free_ = std::max(out_free_, now_) + sim::copy_seconds(link_, static_cast<size_t>(bytes));
      out_done_[course_.trips[i].tensor] = out_free_;
      out_ += bytes;
      if (!course_.trips[i].keeps_memory) leaving_.push_back({out_free_, bytes});
    }
    free_ += gone_[index(at)];
  }

  void fetch(size_t number, int64_t at, double now) {
    const TensorTrip& trip = course_.trips[number];
    if (trip.of_host > 0) {
      const double made = host_begin_ + trip.of_host * course_.host_seconds;
      now = at == step_begin_ ? made : std::max(now, made);
    }
    const double start =
        std::max({in_free_, out_done_[trip.tensor], claim(trip.keeps_memory ? 0 : bytes_of(trip), now)});
    in_free_ = start + sim::copy_seconds(link_, static_cast<size_t>(bytes_of(trip)));
    in_ += bytes_of(trip);
    arrived_[number] = in_free_;
  }

  // Returns the time at which `bytes` are free. Of a later release only the needed part is taken: no other
  // claim before could use it.
  double claim(int64_t bytes, double now) {
    for (; !leaving_.empty() && leaving_.front().at <= now; leaving_.pop_front())
      free_ += leaving_.front().bytes;
    while (free_ < bytes && !leaving_.empty()) {
      Release& next = leaving_.front();
      const int64_t taken = std::min(next.bytes, bytes - free_);
      now = next.at;
      free_ += taken;
      next.bytes -= taken;
      if (next.bytes == 0) leaving_.pop_front();
    }
    IK_CHECK(free_ >= bytes, "a course that least_space() has fit has space for each of its operators");
    free_ -= bytes;
    return now;
  }

  int64_t bytes_of(const TensorTrip& trip) const { return program_.tensors[trip.tensor].bytes; }

  const RecordedProgram& program_;
  const Course& course_;
  const cost::LinkModel& link_;
  int64_t free_;
  std::deque<Release> leaving_;  // Releases in the order of time.
  double now_ = 0, in_free_ = 0, out_free_ = 0, host_begin_ = 0;
  int64_t step_begin_ = 0;
  int64_t in_ = 0, out_ = 0;
  // By operator: bytes that are new before it and gone after it, and trips.
  std::vector<int64_t> born_, gone_;
  std::vector<std::vector<size_t>> outgoing_, incoming_, wanted_;
  std::vector<double> arrived_;   // Time of arrival by trip.
  std::vector<double> out_done_;  // End of the copy out by tensor.
};

}  // namespace

Bytes least_space(const RecordedProgram& program, const Course& course) {
  const std::vector<int64_t> there = occupied(program, course);
  return Bytes(there.empty() ? 0 : *std::max_element(there.begin(), there.end()));
}

StepCost cost(const RecordedProgram& program, const Course& course, const cost::LinkModel& link,
              Bytes space) {
  IK_CHECK(program.steps.size() >= 4, "two steps are measured, between two");
  return Simulation(program, course, link, space).run();
}

}  // namespace innkeeper::replay
