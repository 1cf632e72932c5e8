// The cost of a snapshot in Innkeeper: with eight GPUs, through the fake library, whose own work is small. A
// real driver's time is added to it (docs/design/telemetry.md).
#include <benchmark/benchmark.h>

#include <string>

#include "support/fake_gpus.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::telemetry {
namespace {

std::string machine(int gpus) {
  std::string script;
  for (int i = 0; i < gpus; ++i) {
    const std::string digit = std::to_string(i);
    script += "gpu GPU-0000000" + digit + "-1111\n  bus 00000000:0" + digit + ":00.0\n  name NVIDIA H200\n";
    script +=
        "  memory 140G 1G 3G\n  utilization 30 10\n  power 300 700\n  temperature 50\n  clocks 1980 2619\n";
    script += "  nvlink switch 18\n";
    for (int pid = 1; pid <= 4; ++pid) script += "  process " + std::to_string(1000 * i + pid) + " 1G\n";
  }
  return script;
}

void take(benchmark::State& state, Wanted wanted) {
  const test::FakeGpus gpus(machine(static_cast<int>(state.range(0))), test::FakeGpus::quiet);
  for (auto _ : state) benchmark::DoNotOptimize(snapshot(wanted));
}
void pick(benchmark::State& state) { take(state, Wanted::memory | Wanted::utilization); }
void everything(benchmark::State& state) { take(state, Wanted::all); }

// Loading, starting, one snapshot, ending: the cost for a program that runs once.
void cold(benchmark::State& state) {
  const test::FakeGpus gpus(machine(8), test::FakeGpus::quiet);
  for (auto _ : state) {
    benchmark::DoNotOptimize(snapshot(Wanted::memory | Wanted::utilization));
    shut_down();
  }
}

void resolve(benchmark::State& state) {
  const test::FakeGpus gpus(machine(8), test::FakeGpus::quiet);
  const Snapshot now = snapshot(Wanted::nothing);
  for (auto _ : state) benchmark::DoNotOptimize(resolve_visible("7,3,0,1", "PCI_BUS_ID", now));
}

BENCHMARK(pick)->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);
BENCHMARK(everything)->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);
BENCHMARK(cold)->Unit(benchmark::kMicrosecond);
BENCHMARK(resolve)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace innkeeper::telemetry
