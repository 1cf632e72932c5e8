// The CPU cost of one eviction while 1,000 to 1,000,000 blocks are resident: choosing the victim, queueing
// its copy to the host, freeing its memory. The simulated GPU holds no data, so no byte is copied. Then the
// cost of an operator among that many blocks, and of two pins alone: no processor's caches hold a million
// blocks.
//
//   build/wheel/bench/eviction_bench
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "device/host.h"
#include "residency/engine.h"
#include "sim/accelerator.h"

namespace innkeeper {
namespace {

constexpr Bytes kBlock(4096);

struct Machine {
  explicit Machine(int64_t blocks) {
    sim::Options options{.capacity = Bytes((blocks + 1) * kBlock.count()),
                         .visibility = sim::Visibility::early,
                         .data = false};
    std::vector<NodeSetup> nodes;
    nodes.push_back({sim::make_device(std::make_shared<sim::Accelerator>(options)), options.capacity, true});
    nodes.push_back({std::make_unique<HostDevice>("host", Slabs::Options{.blank = true}), GiB(64), false});
    engine = std::make_unique<Engine>(std::move(nodes), make_reuse_distance_policy());
    for (int64_t i = 0; i < blocks; ++i) {
      all.push_back(engine->create(kBlock));
      use(*all.back());
    }
  }
  ~Machine() {
    for (Block* block : all) engine->destroy(block);
  }
  // An operator that writes the block.
  void use(Block& block) const {
    Access access{.block = &block, .write = true};
    const NodeAdmission scope = engine->admit(gpu, kBlock);
    IK_CHECK(engine->acquire(gpu, std::span(&access, 1)).ok());
    engine->release(gpu, std::span(&access, 1));
  }

  const NodeId gpu{0};
  std::unique_ptr<Engine> engine;
  std::vector<Block*> all;
};

void evict_one(benchmark::State& state) {
  const Machine machine(state.range(0));
  size_t next = 0;  // The least recently used block.
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    IK_CHECK(machine.engine->evictor().relieve(machine.gpu, Bytes(1)).ok());
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    machine.use(*machine.all[next]);  // Fetches the block again.
    next = (next + 1) % machine.all.size();
  }
}
BENCHMARK(evict_one)
    ->RangeMultiplier(10)
    ->Range(1000, 1000000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Blocks in random order, because programs use their blocks in no order that a processor's prefetcher could
// predict.
template <class T>
void mix(std::vector<T>& all) {
  std::shuffle(all.begin(), all.end(), std::minstd_rand(1));  // NOLINT: the same each time
}

// An operator with two operands, all resident, while `count` blocks live.
void use_two(benchmark::State& state) {
  Machine machine(state.range(0));
  mix(machine.all);
  size_t next = 0;
  for (auto _ : state) {
    Access accesses[] = {{.block = machine.all[next]}, {.block = machine.all[next + 1], .write = true}};
    const NodeAdmission scope = machine.engine->admit(machine.gpu, kBlock);
    IK_CHECK(machine.engine->acquire(machine.gpu, accesses).ok());
    machine.engine->release(machine.gpu, accesses);
    next = (next + 2) % machine.all.size();
  }
}
BENCHMARK(use_two)->RangeMultiplier(10)->Range(1000, 1000000);

// The machine's part of that cost: only pins and unpins two words in memory of a block's size.
void pin_two(benchmark::State& state) {
  struct Like {
    std::array<std::atomic<uint64_t>, 38> words;
  };
  std::vector<std::unique_ptr<Like>> all;
  for (int64_t i = 0; i < state.range(0); ++i) all.push_back(std::make_unique<Like>());
  mix(all);
  size_t next = 0;
  for (auto _ : state) {
    for (const size_t each : {next, next + 1}) all[each]->words[8].fetch_add(1, std::memory_order_acquire);
    for (const size_t each : {next, next + 1}) all[each]->words[8].fetch_sub(1, std::memory_order_release);
    next = (next + 2) % all.size();
  }
}
BENCHMARK(pin_two)->RangeMultiplier(10)->Range(1000, 1000000);

}  // namespace
}  // namespace innkeeper
