// The cost of a lease: granting one and releasing it, while 0, 8 or 64 others live. The files are the only
// state, so each grant reads them all; the time is that reading. The p50 of each part is a counter, in
// microseconds.
//
//   build/wheel/bench/lease_bench
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "lease/arbiter.h"

namespace innkeeper::lease {
namespace {

using Clock = std::chrono::steady_clock;

double median_us(std::vector<double>& times) {
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

Machine eight_gpus() {
  Machine machine;
  for (int i = 0; i < 8; ++i) {
    Gpu gpu;
    gpu.uuid = "GPU-8f6c1a2b-0000-4000-8000-00000000000" + std::to_string(i);
    gpu.total = gpu.free.emplace(GiB(80));
    gpu.processes_known = true;
    machine.gpus.push_back(gpu);
  }
  return machine;
}

class LeaseDirectory {
 public:
  LeaseDirectory() {
    std::string path = "/dev/shm/lease-bench.XXXXXX";
    if (mkdtemp(path.data()) == nullptr) std::abort();
    outer_ = path;
  }
  ~LeaseDirectory() { std::filesystem::remove_all(outer_); }
  Arbiter arbiter() const { return Arbiter(Directory::open(outer_ + "/leases").value()); }

 private:
  std::string outer_;
};

void grant_and_release(benchmark::State& state) {
  const LeaseDirectory directory;
  Arbiter arbiter = directory.arbiter();
  const Machine machine = eight_gpus();
  Request request;
  request.memory = GiB(1);
  std::vector<Lease> others;
  for (int64_t i = 0; i < state.range(0); ++i) others.push_back(arbiter.acquire(request, machine).value());
  std::vector<double> grants, releases;
  for ([[maybe_unused]] const auto unused : state) {
    const auto begin = Clock::now();
    Lease lease = arbiter.acquire(request, machine).value();
    const auto granted = Clock::now();
    lease.release();
    grants.push_back(us(granted - begin));
    releases.push_back(us(Clock::now() - granted));
  }
  state.counters["grant_p50_us"] = median_us(grants);
  state.counters["release_p50_us"] = median_us(releases);
}
BENCHMARK(grant_and_release)->Arg(0)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);

void list_all(benchmark::State& state) {
  const LeaseDirectory directory;
  Arbiter arbiter = directory.arbiter();
  const Machine machine = eight_gpus();
  Request request;
  request.memory = GiB(1);
  std::vector<Lease> others;
  for (int64_t i = 0; i < state.range(0); ++i) others.push_back(arbiter.acquire(request, machine).value());
  for ([[maybe_unused]] const auto unused : state) benchmark::DoNotOptimize(arbiter.list().value().size());
}
BENCHMARK(list_all)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace innkeeper::lease
