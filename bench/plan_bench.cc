// The CPU cost of planning: the end of each operator while the planner looks for a period, and while a
// program follows one; and the making of a schedule.
//
//     build/wheel/bench/plan_bench
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/planner.h"

namespace innkeeper::plan {
namespace {

constexpr NodeId kGpu{0};

// Training steps of `layers` layers of three operators each, with blocks that are only names.
class Program {
 public:
  Program(int64_t layers, Bytes space, Planner::RunInBackground run_in_background = {})
      : planner([space](NodeId) { return space; }, [](NodeId) { return AboutNode{}; },
                std::move(run_in_background)),
        results_(static_cast<size_t>(layers)) {
    for (int64_t i = 0; i < layers; ++i) weights_.push_back(meet());
  }
  // Runs one training step; returns the number of its operators.
  int64_t step() {
    const size_t layers = weights_.size();
    for (size_t i = 0; i < layers; ++i) {
      results_[i] = meet();
      op({read(weights_[i], i), read(i > 0 ? results_[i - 1] : weights_[0], i), written(results_[i], i)});
    }
    for (size_t i = layers; i-- > 0;) {
      const Name gradient = meet();
      op({read(results_[i], i), read(weights_[i], i), written(gradient, i)});
      op({read(gradient, i), written(weights_[i], i)});
      planner.forget(gradient);
      planner.forget(results_[i]);
    }
    return static_cast<int64_t>(3 * layers);
  }

  Planner planner;

 private:
  static Touch read(Name name, size_t layer) {
    return {name, KiB(1 + static_cast<int64_t>(layer % 7)), false};
  }
  static Touch written(Name name, size_t layer) {
    return {name, KiB(1 + static_cast<int64_t>(layer % 7)), true};
  }
  Name meet() {
    fake_ += 64;
    return planner.meet(reinterpret_cast<Block*>(fake_));
  }
  void op(std::initializer_list<Touch> touches) {
    planner.ended(kGpu, std::span(touches.begin(), touches.size()));
    for (Order order; planner.next(order);) benchmark::DoNotOptimize(order);
  }

  uintptr_t fake_ = 0;
  std::vector<Name> weights_;
  std::vector<Name> results_;
};

// All blocks fit, so that the planner finds a period again and again, and refuses it.
void BM_Search(benchmark::State& state) {
  Program program(state.range(0), GiB(100));
  int64_t operators = 0;
  for (auto _ : state) operators += program.step();
  state.SetItemsProcessed(operators);
}
BENCHMARK(BM_Search)->Arg(5)->Arg(300)->Arg(30'000);

void BM_Follow(benchmark::State& state) {
  Program program(state.range(0), KiB(4 * state.range(0)));
  for (int i = 0; i < 3; ++i) program.step();
  if (!program.planner.follows()) state.SkipWithError("no period is followed");
  int64_t operators = 0;
  for (auto _ : state) operators += program.step();
  state.SetItemsProcessed(operators);
}
BENCHMARK(BM_Follow)->Arg(300)->Arg(30'000);

// The first three periods: the search for one, and its schedule.
void BM_Learn(benchmark::State& state) {
  for (auto _ : state) {
    Program program(state.range(0), KiB(4 * state.range(0)));
    for (int i = 0; i < 3; ++i) program.step();
    if (!program.planner.follows()) state.SkipWithError("no period is followed");
  }
}
BENCHMARK(BM_Learn)->Arg(300)->Arg(30'000)->Unit(benchmark::kMillisecond);

// The program's part of that cost if the schedule is made concurrently.
void BM_LearnInBackground(benchmark::State& state) {
  for (auto _ : state) {
    int jobs = 0;
    Program program(state.range(0), KiB(4 * state.range(0)), [&jobs](auto) { ++jobs; });
    for (int i = 0; i < 3; ++i) program.step();
    if (jobs != 1) state.SkipWithError("no schedule is started");
  }
}
BENCHMARK(BM_LearnInBackground)->Arg(30'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace innkeeper::plan
