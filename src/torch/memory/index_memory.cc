#include "torch/memory/index_memory.h"

#include <array>
#include <atomic>

#include "torch/memory/device_index.h"

namespace innkeeper::torch_layer {
namespace {

struct Counters {
  std::atomic<int64_t> now{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> since_emptied{0};
};

std::array<Counters, kMaxNodes> counters;

Counters& counters_of(c10::DeviceIndex index) { return counters[static_cast<size_t>(index) % kMaxNodes]; }

void raise_to(std::atomic<int64_t>& most, int64_t value) {
  int64_t before = most.load(std::memory_order_relaxed);
  while (before < value && !most.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void count_bytes(c10::DeviceIndex index, Bytes change) noexcept {
  Counters& mine = counters_of(index);
  const int64_t now = mine.now.fetch_add(change.count(), std::memory_order_relaxed) + change.count();
  raise_to(mine.peak, now);
  raise_to(mine.since_emptied, now);
}

IndexMemory index_memory(c10::DeviceIndex index) {
  const Counters& mine = counters_of(index);
  return {Bytes(mine.now.load()), Bytes(mine.peak.load()), Bytes(mine.since_emptied.load())};
}

void reset_peak(c10::DeviceIndex index) {
  Counters& mine = counters_of(index);
  mine.peak.store(mine.now.load());
}

void note_empty_cache() {
  for (Counters& each : counters) each.since_emptied.store(each.now.load());
}

}  // namespace innkeeper::torch_layer
