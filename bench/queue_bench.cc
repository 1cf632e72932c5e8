// The cost of the queue through the library: adding a job, listing 100,000, and a job's whole life by the
// runner. Counters: adds a second, milliseconds for a list, jobs a second.
//
//   build/wheel/bench/queue_bench
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "support/temporary_queue_directory.h"

namespace innkeeper::queue {
namespace {

JobSpec small() {
  JobSpec spec;
  spec.command = {"/bin/true"};
  spec.directory = "/";
  return spec;
}

// One transaction for each job, as in a program that submits jobs. No job is started.
void add(benchmark::State& state) {
  const test::TemporaryQueueDirectory directory;
  Queue queue = directory.queue();
  if (!queue.pause_all().ok()) std::abort();
  const JobSpec spec = small();  // The jobs have this process's environment.
  for ([[maybe_unused]] const auto unused : state) benchmark::DoNotOptimize(queue.add(spec).value().front());
  state.counters["adds_per_s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(add)->Iterations(10'000)->Unit(benchmark::kMicrosecond)->UseRealTime();

void list(benchmark::State& state) {
  const test::TemporaryQueueDirectory directory;
  Queue queue = directory.queue();
  if (!queue.pause_all().ok()) std::abort();
  JobSpec spec = small();
  spec.command = {"python", "train.py", "--seed", "{index}"};
  for (int64_t i = 0; i < state.range(0); ++i) spec.indices.push_back(i);
  if (!queue.add(spec).ok()) std::abort();
  for ([[maybe_unused]] const auto unused : state) benchmark::DoNotOptimize(queue.list().value().size());
}
BENCHMARK(list)->Arg(1000)->Arg(100'000)->Unit(benchmark::kMillisecond)->UseRealTime();

// From the first add to the end of all jobs: the runner claims, starts and records each, and waits for the
// disk twice per job.
void run(benchmark::State& state) {
  const test::TemporaryQueueDirectory directory;
  Queue queue = directory.queue();
  JobSpec spec = small();
  for (int64_t i = 0; i < state.range(0); ++i) spec.indices.push_back(i);
  for ([[maybe_unused]] const auto unused : state)
    if (!queue.wait(queue.add(spec).value()).ok()) std::abort();
  state.counters["jobs_per_s"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                                                    benchmark::Counter::kIsRate);
}
BENCHMARK(run)->Arg(200)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace innkeeper::queue
