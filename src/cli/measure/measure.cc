#include "cli/measure/measure.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "device/disk.h"

namespace innkeeper::cli {
namespace {

constexpr int kLatencyReads = 65;
constexpr int64_t kBlock = int64_t{4} << 20;

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Free {
  void operator()(char* data) const { std::free(data); }
};
using Buffer = std::unique_ptr<char, Free>;

// Returns a buffer whose pages exist because they were written once.
Buffer filled(size_t size) {
  Buffer buffer(static_cast<char*>(std::aligned_alloc(kPageBytes, size)));
  if (buffer) std::memset(buffer.get(), 0x5a, size);
  return buffer;
}

// Returns the number of processors that this process may run on.
int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Returns the best of several rounds: other programs can only slow a round down.
double best_copy_rate(char* to, const char* from, size_t size, int threads) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double seconds = seconds_of([&] {
      std::vector<std::thread> workers;
      for (int i = 0; i < threads; ++i) {
        const size_t begin = size * static_cast<size_t>(i) / static_cast<size_t>(threads);
        const size_t end = size * static_cast<size_t>(i + 1) / static_cast<size_t>(threads);
        workers.emplace_back([=] { std::memcpy(to + begin, from + begin, end - begin); });
      }
      for (std::thread& worker : workers) worker.join();
    });
    best = std::max(best, static_cast<double>(size) / seconds);
  }
  return best;
}

}  // namespace

Result<HostRates> measure_host(Bytes size) {
  const size_t count = (static_cast<size_t>(size.count()) + kPageBytes - 1) / kPageBytes * kPageBytes;
  const Buffer from = filled(count), to = filled(count);
  if (!from || !to)
    return Status(Code::out_of_memory,
                  "no memory for two buffers of " + to_string(size) + ": --size makes them smaller");
  HostRates rates;
  rates.threads = processors();
  rates.copy_one = best_copy_rate(to.get(), from.get(), count, 1);
  rates.copy_all = best_copy_rate(to.get(), from.get(), count, rates.threads);
  return rates;
}

Result<DiskRates> measure_disk(const std::string& directory, Bytes size) {
  const auto blocks = static_cast<size_t>(std::max<int64_t>(1, size.count() / kBlock));
  Result<std::unique_ptr<DiskDevice>> opened =
      DiskDevice::open(directory, Bytes(static_cast<int64_t>(blocks + 1) * kBlock));
  if (!opened.ok()) return opened.status();
  DiskDevice& disk = *opened.value();
  const Buffer buffer = filled(kBlock);
  if (!buffer) return Status(Code::out_of_memory, "no memory for a buffer of " + to_string(Bytes(kBlock)));
  std::vector<Memory> ranges;
  for (size_t i = 0; i < blocks; ++i) {
    Result<Memory> range = disk.allocate(Bytes(kBlock));
    if (!range.ok()) return range.status();
    ranges.push_back(std::move(range).value());
  }
  Status problem;
  const auto all = [&](const auto& transfer) {
    return seconds_of([&] {
      std::vector<Event> events;
      for (const Memory& range : ranges) {
        Result<Event> event = transfer(range);
        if (!event.ok()) problem = event.status();
        if (event.ok()) events.push_back(event.value());
      }
      for (const Event& event : events)
        if (const Status done = event ? event->synchronize() : Status(); !done.ok()) problem = done;
    });
  };
  DiskRates rates;
  rates.direct = disk.direct();
  const double bytes = static_cast<double>(blocks) * kBlock;
  rates.write = bytes / all([&](const Memory& range) {
                  return disk.copy_in(range.data(), buffer.get(), Bytes(kBlock));
                });
  rates.read = bytes / all([&](const Memory& range) {
                 return disk.copy_out(buffer.get(), range.data(), Bytes(kBlock));
               });
  IK_RETURN_IF_ERROR(problem);

  Result<Memory> page = disk.allocate(Bytes(kPageBytes));
  if (!page.ok()) return page.status();
  Result<Event> written = disk.copy_in(page.value().data(), buffer.get(), Bytes(kPageBytes));
  if (!written.ok()) return written.status();
  IK_RETURN_IF_ERROR(written.value()->synchronize());
  std::vector<double> times;
  for (int i = 0; i < kLatencyReads; ++i) {
    times.push_back(seconds_of([&] {
      const Result<Event> event = disk.copy_out(buffer.get(), page.value().data(), Bytes(kPageBytes));
      problem = event.ok() ? event.value()->synchronize() : event.status();
    }));
    IK_RETURN_IF_ERROR(problem);
  }
  std::nth_element(times.begin(), times.begin() + kLatencyReads / 2, times.end());
  rates.latency = times[kLatencyReads / 2];
  return rates;
}

}  // namespace innkeeper::cli
