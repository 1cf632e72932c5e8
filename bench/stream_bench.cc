// The cost of the access stream for an operator: without a listener, while a tracker follows its thread's
// program, and while a trace is recorded; and the time to turn a record into text.
//
//     build/wheel/bench/stream_bench
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <vector>

#include "device/host.h"
#include "residency/engine.h"
#include "sim/accelerator.h"
#include "trace/recorder.h"

namespace innkeeper {
namespace {

using trace::AccessKind;
using trace::RecordedAccess;
using trace::Recorder;

constexpr NodeId kGpu{0};
constexpr Bytes kBlock(4096);
constexpr int64_t kOperators = int64_t{1} << 20;

void record_one(Recorder& recorder) {
  const RecordedAccess accesses[] = {{BlockId{123456}, KiB(64), AccessKind::read},
                                     {BlockId{123457}, KiB(64), AccessKind::read},
                                     {BlockId{234567}, KiB(64), AccessKind::born}};
  recorder.op("aten::add.Tensor", {.flops = 16384, .bytes = 196608, .kernels = 1}, accesses);
}

struct Machine {
  Machine() {
    const sim::Options options{.capacity = MiB(1), .visibility = sim::Visibility::early, .data = false};
    std::vector<NodeSetup> nodes;
    nodes.push_back({sim::make_device(std::make_shared<sim::Accelerator>(options)), options.capacity, true});
    nodes.push_back({std::make_unique<HostDevice>("host", Slabs::Options{.blank = true}), GiB(1), false});
    engine = std::make_unique<Engine>(std::move(nodes), make_lru_policy());
    for (Block*& block : blocks) block = engine->create(kBlock);
    use();
  }
  ~Machine() {
    for (Block* block : blocks) engine->destroy(block);
  }
  // An operator on three blocks, all of them resident.
  void use() {
    Access accesses[] = {{.block = blocks[0]}, {.block = blocks[1]}, {.block = blocks[2], .write = true}};
    IK_CHECK(engine->acquire(kGpu, accesses).ok());
    engine->release(kGpu, accesses);
  }

  std::unique_ptr<Engine> engine;
  std::array<Block*, 3> blocks{};
};

void operator_unheard(benchmark::State& state) {
  Machine machine;
  for (auto _ : state) machine.use();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(operator_unheard);

// A tracker follows the thread's program from the first eviction on.
void operator_followed(benchmark::State& state) {
  Machine machine;
  IK_CHECK(machine.engine->evictor().relieve(kGpu, Bytes(1)).ok());
  for (auto _ : state) machine.use();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(operator_followed);

// The recorder's part of an operator's path, on one thread and on two threads at the same time.
void operator_recorded(benchmark::State& state) {
  static Recorder recorder;
  if (state.thread_index() == 0) recorder.start(static_cast<size_t>(2 * kOperators));
  for (auto _ : state) record_one(recorder);
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) benchmark::DoNotOptimize(recorder.stop());
}
BENCHMARK(operator_recorded)->Iterations(kOperators)->Threads(1)->Threads(2)->UseRealTime();

void fill(Recorder& recorder) {
  recorder.start(static_cast<size_t>(kOperators));
  for (int64_t i = 0; i < kOperators; ++i) record_one(recorder);
}

// A record's events, read in order.
void read_events(benchmark::State& state) {
  const auto stream = std::make_shared<trace::Stream>();
  Recorder recorder(stream);
  for (auto _ : state) {
    state.PauseTiming();
    fill(recorder);
    state.ResumeTiming();
    trace::Merged events = stream->stop();
    for (trace::Event event; events.next(event);) benchmark::DoNotOptimize(event);
  }
  state.SetItemsProcessed(state.iterations() * kOperators);
}
BENCHMARK(read_events)->Unit(benchmark::kMillisecond);

// A record's events, read in order and turned into text.
void read_text(benchmark::State& state) {
  Recorder recorder;
  for (auto _ : state) {
    state.PauseTiming();
    fill(recorder);
    state.ResumeTiming();
    benchmark::DoNotOptimize(recorder.stop());
  }
  state.SetItemsProcessed(state.iterations() * kOperators);
}
BENCHMARK(read_text)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace innkeeper
