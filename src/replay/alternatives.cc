#include "replay/alternatives.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include "replay/trips.h"

namespace innkeeper::replay {
namespace {

constexpr int64_t kParts = 64;      // Number of parts into which tensors are divided if some may stay.
constexpr double kInstant = 1e-12;  // Shorter than any kernel, s.

// Number of modules in a step, and number of modules that are prefetched ahead.
struct Cut {
  int64_t modules = 1;
  int64_t ahead = 1;
};
constexpr Cut kCuts[] = {{8, 1}, {16, 1}, {32, 1}, {64, 1}, {128, 1}, {256, 1}, {512, 1}, {16, 8}, {64, 16}};

const Parts& step_of(const RecordedProgram& program, int64_t at) {
  return *std::upper_bound(program.steps.begin(), program.steps.end(), at,
                           [](int64_t value, const Parts& step) { return value < step.end; });
}

// Order of the tensors of one role: the first ones move first.
int64_t order_of(const RecordedProgram& program, const Tensor& tensor) {
  if (tensor.role != Role::gradient || tensor.uses.empty())
    return tensor.uses.empty() ? kNone : tensor.uses[0].at;
  const int64_t optimizer = program.steps[index(tensor.step)].optimizer;
  const auto use = std::find_if(tensor.uses.begin(), tensor.uses.end(),
                                [&](const TensorUse& u) { return u.at >= optimizer; });
  return use == tensor.uses.end() ? kNone : use->at;
}

// Returns for each tensor of these roles its part (0 to kParts - 1): the first tensors have the lowest. Each
// role of each step is divided separately. kParts: the tensor has no such role.
std::vector<int64_t> parts_of(const RecordedProgram& program, std::initializer_list<Role> roles) {
  std::vector<int64_t> parts(program.tensors.size(), kParts);
  for (const Role role : roles) {
    std::vector<size_t> all;
    for (size_t i = 0; i < parts.size(); ++i)
      if (program.tensors[i].role == role) all.push_back(i);
    std::stable_sort(all.begin(), all.end(), [&](size_t a, size_t b) {
      return std::pair(program.tensors[a].step, order_of(program, program.tensors[a])) <
             std::pair(program.tensors[b].step, order_of(program, program.tensors[b]));
    });
    for (auto from = all.begin(); from != all.end();) {
      const int64_t step = program.tensors[*from].step;
      const auto to =
          std::find_if(from, all.end(), [&](size_t i) { return program.tensors[i].step != step; });
      const auto add = [&](double sum, size_t i) {
        return sum + static_cast<double>(program.tensors[i].bytes);
      };
      const double total = std::accumulate(from, to, 0.0, add);
      double before = 0;
      for (; from != to; ++from) {
        parts[*from] = static_cast<int64_t>(before / std::max(total, 1.0) * kParts);
        before = add(before, *from);
      }
    }
  }
  return parts;
}

std::vector<bool> up_to(const std::vector<int64_t>& parts, int64_t end) {
  std::vector<bool> moved(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) moved[i] = parts[i] < end;
  return moved;
}

// A step's operators, divided into modules whose kernels take about equal time.
class Modules {
 public:
  Modules(const RecordedProgram& program, const Cut& cut) : ahead_(cut.ahead), of_(program.kernels.size()) {
    for (const Parts& step : program.steps) {
      const auto kernels = program.kernels.begin();
      const double all = std::accumulate(kernels + step.begin, kernels + step.end, 0.0);
      double before = 0;
      int64_t last = kNone;
      for (int64_t at = step.begin; at < step.end; ++at) {
        const auto part =
            static_cast<int64_t>(before / std::max(all, kInstant) * static_cast<double>(cut.modules));
        if (std::exchange(last, part) != part) begins_.push_back(at);
        of_[index(at)] = static_cast<int64_t>(begins_.size()) - 1;
        before += program.kernels[index(at)];
      }
    }
  }

  // Returns whether a module lies between those of these two operators.
  bool apart(int64_t use, int64_t next) const { return of_[index(next)] > of_[index(use)] + 1; }
  // Returns the first operator beside which a tensor of operator `at` may be fetched, if its
  // previous use was `use`.
  int64_t before(int64_t at, int64_t use = kNone) const {
    return std::max(use + 1, begins_[index(std::max<int64_t>(of_[index(at)] - ahead_, 0))]);
  }

 private:
  const int64_t ahead_;
  std::vector<int64_t> of_;      // Module of each operator.
  std::vector<int64_t> begins_;  // First operator of each module.
};

// Adds a tensor's trips: between all uses that are apart; for saved activations only across the turn.
void add_trips(Course& course, const RecordedProgram& program, size_t number, const Modules& modules) {
  const Tensor& tensor = program.tensors[number];
  if (tensor.uses.empty()) {
    course.trips.push_back({.tensor = number});
    return;
  }
  const int64_t first = tensor.uses.front().at;
  if (tensor.lasts)
    course.trips.push_back({.tensor = number, .returns = first, .from = modules.before(first)});
  bool dirty = !tensor.lasts;
  for (size_t i = 0; i + 1 < tensor.uses.size(); ++i) {
    const auto [use, next] = std::pair(tensor.uses[i], tensor.uses[i + 1]);
    dirty |= use.write;
    if (!modules.apart(use.at, next.at)) continue;
    if (tensor.role == Role::saved) {
      const int64_t turn = program.steps[index(tensor.step)].turn;
      if (use.at > turn || next.at <= turn) continue;
    }
    course.trips.push_back({.tensor = number,
                            .leaves = use.at,
                            .copied = std::exchange(dirty, false),
                            .returns = next.at,
                            .from = modules.before(next.at, use.at)});
  }
  const TensorUse last = tensor.uses.back();
  if (tensor.role == Role::saved) return;
  // A gradient is not used after the optimizer's part, though the program keeps it.
  course.trips.push_back(
      {.tensor = number, .leaves = last.at, .copied = tensor.lasts && (dirty || last.write)});
}

Course course_of(const RecordedProgram& program, const std::vector<bool>& moved, const Modules& modules) {
  Course course;
  for (size_t i = 0; i < moved.size(); ++i)
    if (moved[i]) add_trips(course, program, i, modules);
  return course;
}

// Returns the program without the optimizer's parts, which the host computes.
RecordedProgram without_optimizer(RecordedProgram program) {
  const auto within = [&](int64_t at) { return at >= step_of(program, at).optimizer; };
  for (const Parts& step : program.steps)
    std::fill(program.kernels.begin() + step.optimizer, program.kernels.begin() + step.end, 0.0);
  for (Tensor& tensor : program.tensors)
    std::erase_if(tensor.uses, [&](const TensorUse& use) { return within(use.at); });
  return program;
}

// Returns the bytes that the host touches in each step.
double host_bytes(const RecordedProgram& program) {
  double bytes = 0;
  for (const Tensor& tensor : program.tensors) {
    const auto size = static_cast<double>(tensor.bytes);
    const bool last = tensor.lasts || tensor.step + 1 == static_cast<int64_t>(program.steps.size());
    if (tensor.trained || tensor.role == Role::state) bytes += 2 * size;
    if (tensor.role == Role::gradient && last) bytes += size;
  }
  return bytes;
}

// State stays at the host for good, gradients go there, and trained parameters come from there once per step.
// With modules, parameters also leave between their other uses. `rest`: without_optimizer().
Course course_by_host(const RecordedProgram& whole, const RecordedProgram& rest, const Modules* modules,
                      double bandwidth) {
  std::vector<bool> moved(rest.tensors.size());
  Course course{.never_there = std::vector<bool>(moved.size()),
                .host_seconds = host_bytes(whole) / bandwidth};
  double trained = 0;
  for (size_t i = 0; i < moved.size(); ++i) {
    const Tensor& tensor = rest.tensors[i];
    course.never_there[i] = tensor.uses.empty() && (tensor.role == Role::state || !tensor.lasts);
    moved[i] = (tensor.role == Role::parameter && (modules != nullptr || tensor.trained)) ||
               (tensor.role == Role::gradient && !tensor.uses.empty());
    if (tensor.trained) trained += static_cast<double>(tensor.bytes);
  }
  std::vector<size_t> updated;  // Trips that wait for the host.
  for (size_t i = 0; i < moved.size(); ++i) {
    if (!moved[i]) continue;
    const Tensor& tensor = rest.tensors[i];
    if (tensor.role == Role::gradient) {
      for (size_t k = 0; k < tensor.uses.size(); ++k) {
        const int64_t at = tensor.uses[k].at;
        if (k + 1 < tensor.uses.size() && tensor.uses[k + 1].at < step_of(rest, at).end) continue;
        // A gradient that lasts is filled with zeros in place.
        course.trips.push_back({.tensor = i, .leaves = at, .copied = true, .keeps_memory = tensor.lasts});
      }
      continue;
    }
    const size_t begin = course.trips.size();
    if (modules != nullptr) {
      add_trips(course, rest, i, *modules);
    } else {
      for (size_t k = 0; k + 1 < tensor.uses.size(); ++k) {
        const int64_t next = tensor.uses[k + 1].at;
        if (step_of(rest, tensor.uses[k].at).end <= next)
          course.trips.push_back(
              {.tensor = i, .leaves = tensor.uses[k].at, .returns = next, .keeps_memory = true});
      }
    }
    for (size_t k = begin; k < course.trips.size(); ++k) {
      TensorTrip& trip = course.trips[k];
      if (!tensor.trained || trip.leaves == kNone || trip.returns == kNone) continue;
      const int64_t step = step_of(rest, trip.returns).begin;
      if (trip.leaves >= step) continue;
      trip.from = std::max(trip.keeps_memory ? 0 : trip.from, step);
      updated.push_back(k);
    }
  }
  // They return in the order of their use, and the host computes them in that order.
  std::stable_sort(updated.begin(), updated.end(),
                   [&](size_t a, size_t b) { return course.trips[a].returns < course.trips[b].returns; });
  double done = 0;
  int64_t step = kNone;
  for (const size_t k : updated) {
    TensorTrip& trip = course.trips[k];
    const int64_t begin = step_of(rest, trip.returns).begin;
    if (std::exchange(step, begin) != begin) done = 0;
    done += static_cast<double>(rest.tensors[trip.tensor].bytes);
    trip.of_host = done / trained;
  }
  return course;
}

// The fastest of the tried courses.
class Best {
 public:
  Best(const cost::LinkModel& link, Bytes space) : link_(link), space_(space) {}

  void consider(const RecordedProgram& program, const Course& course) {
    const Bytes least = least_space(program, course);
    found_.least = any_ ? std::min(found_.least, least) : least;
    any_ = true;
    if (least > space_) return;
    const StepCost now = cost(program, course, link_, space_);
    if (found_.cost && found_.cost->seconds <= now.seconds) return;
    found_.cost = now;
    found_.by_host = course.host_seconds > 0;
  }
  const Alternative& found() const { return found_; }

 private:
  const cost::LinkModel& link_;
  const Bytes space_;
  bool any_ = false;
  Alternative found_;
};

Alternative in_parts(const RecordedProgram& program, const cost::LinkModel& link, Bytes space,
                     std::initializer_list<Role> roles) {
  Best best(link, space);
  const std::vector<int64_t> parts = parts_of(program, roles);
  const auto course = [&](int64_t part, const Modules& modules) {
    return course_of(program, up_to(parts, part), modules);
  };
  for (const Cut& cut : kCuts) {
    const Modules modules(program, cut);
    // Fewest parts that fit; more parts leave space for tensors that are fetched ahead.
    int64_t most = kParts;
    for (int64_t least = 0; least + 1 < most;) {
      const int64_t middle = (least + most) / 2;
      (least_space(program, course(middle, modules)) <= space ? most : least) = middle;
    }
    for (int64_t more = 1, part = most; part < kParts; part += std::exchange(more, 2 * more))
      best.consider(program, course(part, modules));
    best.consider(program, course(kParts, modules));
  }
  return best.found();
}

Alternative of_optimizer(const RecordedProgram& program, const cost::LinkModel& link, Bytes space,
                         double host_bandwidth) {
  Best best(link, space);
  const RecordedProgram rest = without_optimizer(program);
  const auto all = [&](std::initializer_list<Role> roles) { return up_to(parts_of(program, roles), kParts); };
  const std::vector<bool> ways[] = {all({Role::state}), all({Role::state, Role::gradient}),
                                    all({Role::state, Role::gradient, Role::parameter})};
  best.consider(rest, course_by_host(program, rest, nullptr, host_bandwidth));
  for (const Cut& cut : kCuts) {
    const Modules modules(program, cut), others(rest, cut);
    for (const std::vector<bool>& moved : ways) best.consider(program, course_of(program, moved, modules));
    best.consider(rest, course_by_host(program, rest, &others, host_bandwidth));
  }
  return best.found();
}

}  // namespace

Alternatives alternatives(const RecordedProgram& program, const cost::LinkModel& link, Bytes space,
                          double host_bandwidth) {
  Alternatives all{in_parts(program, link, space, {Role::parameter, Role::gradient, Role::state}),
                   in_parts(program, link, space, {Role::saved}),
                   of_optimizer(program, link, space, host_bandwidth)};
  const Course nothing;
  if (least_space(program, nothing) <= space) {
    const StepCost kernels = cost(program, nothing, link, space);
    for (Alternative* each : {&all.modules, &all.activations, &all.optimizer}) {
      each->cost = kernels;
      each->by_host = false;
    }
  }
  return all;
}

}  // namespace innkeeper::replay
