// Many threads, small memory. Each trains blocks of its own, reads blocks that all share, and allocates
// results and scratch memory inside its kernels; meanwhile another thread prefetches, evicts and writes back.
// Nothing may hang, no operator may fail (each alone would fit), the bytes must be right, and no node may
// exceed its budget.
//
// INNKEEPER_SEED replays a seed (threads still interleave as they like), INNKEEPER_STEPS sets steps for each
// thread.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "support/block_owner.h"
#include "support/environment.h"
#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

struct StressCase {
  const char* name;
  MachineOptions machine;
  size_t threads = 6;
  size_t private_blocks = 8;
  size_t shared_blocks = 8;
  size_t size = 2000;  // Bytes of a block.
  bool meddle = true;  // Another thread makes requests meanwhile.
};

class Trainer : BlockOwner {
 public:
  Trainer(Machine& machine, const StressCase& setup, std::span<Block* const> shared, uint64_t seed)
      : BlockOwner(machine, seed), setup_(setup), shared_(shared), seed_(seed) {}

  void run(uint64_t steps) {
    for (size_t i = 0; i < setup_.private_blocks; ++i) {
      blocks_.push_back({machine_->create(Bytes(static_cast<int64_t>(setup_.size))), {}});
      write(blocks_.back());
    }
    for (uint64_t step = 0; step < steps && !testing::Test::HasFailure(); ++step) fused_factories();
    for (Owned& owned : blocks_) {
      check(owned);
      machine_->destroy(owned.block);
    }
  }

 private:
  void write(Owned& owned) {
    owned.contents = pattern(setup_.size, seed_ * 1000003 + ++version_);
    const Status status = machine_.write(*owned.block, any_node(), owned.contents);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  // A kernel that reads two shared blocks and an own one, with a new result and scratch memory.
  void compute() {
    const NodeId node = any_node();
    const size_t first = below(shared_.size());
    const size_t second = below(shared_.size());
    Owned& input = any();
    Contents wanted(setup_.size);
    const Contents a = pattern(setup_.size, first);
    const Contents b = pattern(setup_.size, second);
    const auto combine = [](unsigned x, unsigned y, unsigned z) {
      return static_cast<unsigned char>((x + 2 * y + 3 * z) % 255);
    };
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = combine(a[i], b[i], input.contents[i]);
    const Bytes size(static_cast<int64_t>(setup_.size));
    Result<Block*> result = machine_.run_for_result(
        node, {{.block = shared_[first]}, {.block = shared_[second]}, {.block = input.block}}, size, size,
        [&](auto operands) {
          for (size_t i = 0; i < setup_.size; ++i) {
            operands[3][i] = combine(operands[0][i], operands[1][i], operands[2][i]);
          }
        });
    ASSERT_TRUE(result.ok()) << result.status().message();
    Owned& replaced = any();
    machine_->destroy(replaced.block);
    replaced = {result.value(), std::move(wanted)};
  }

  void fused_factories() {
    switch (below(setup_.meddle ? 12 : 8)) {
      case 0: return write(any());
      case 1:
      case 2: return check(any());
      case 8: return (void)machine_->requests().prefetch(*any().block, any_node());
      case 9: return (void)machine_->requests().evict(*any().block);
      case 10: return (void)machine_->requests().write_back(*any().block);
      case 11:
        if (below(8) == 0) (void)machine_->evictor().evict_all();
        if (below(8) == 0) (void)machine_->requests().prefetch(*shared_[below(shared_.size())], any_node());
        if (below(8) == 0) (void)machine_->stats();
        return;
      default: return compute();
    }
  }

  const StressCase& setup_;
  const std::span<Block* const> shared_;
  const uint64_t seed_;
  uint64_t version_ = 0;
};

class ThreadsTest : public testing::TestWithParam<StressCase> {};

TEST_P(ThreadsTest, NoThreadHangsFailsOrReadsWrongBytes) {
  const StressCase& setup = GetParam();
  const uint64_t steps = from_environment("INNKEEPER_STEPS", 150);
  const uint64_t seed = from_environment("INNKEEPER_SEED", 1);
  SCOPED_TRACE("INNKEEPER_SEED=" + std::to_string(seed));
  Machine machine(setup.machine);
  const Watchdog watchdog(std::chrono::seconds(300));
  machine->mover().thread().start();
  machine.set_pause([] { std::this_thread::sleep_for(std::chrono::microseconds(50)); });
  std::vector<Block*> shared;
  for (size_t i = 0; i < setup.shared_blocks; ++i) {
    shared.push_back(machine->create(Bytes(static_cast<int64_t>(setup.size))));
    ASSERT_TRUE(
        machine.write(*shared.back(), machine->computing_nodes().front(), pattern(setup.size, i)).ok());
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < setup.threads; ++i) {
    threads.emplace_back([&, i] { Trainer(machine, setup, shared, seed * 100 + i).run(steps); });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->check_invariants(), "");
  for (size_t i = 0; i < shared.size(); ++i) {
    Result<Contents> seen = machine.read(*shared[i], machine->computing_nodes().front());
    ASSERT_TRUE(seen.ok()) << seen.status().message();
    EXPECT_TRUE(seen.value() == pattern(setup.size, i));
  }
  const Stats stats = machine->stats();
  for (const auto& [name, row] : stats.nodes) {
    EXPECT_LE(row.peak, row.budget) << name;
    EXPECT_EQ(row.resident, row.recount) << name;
  }
  EXPECT_GT(stats.evictions, 0);
  for (Block* block : shared) machine->destroy(block);
  EXPECT_EQ(machine->check_invariants(), "");
}

// A thread's operator needs at most 5 blocks of 2 KiB at once; memory is about a quarter of all blocks'
// bytes.
const StressCase kThreadCases[] = {
    {.name = "TwoAccelerators", .machine = {.accelerators = 2, .budget = KiB(16)}},
    {.name = "FourAcceleratorsTwelveThreads",
     .machine = {.accelerators = 4, .budget = KiB(14), .visibility = sim::Visibility::random},
     .threads = 12},
    {.name = "NarrowLinksOverASmallHostAndADisk",
     .machine = {.accelerators = 2,
                 .budget = KiB(16),
                 .host_budget = KiB(24),
                 .disk_budget = MiB(4),
                 .visibility = sim::Visibility::random,
                 .peers = false,
                 .links = {.part = Bytes(512), .few = 1, .enough = Bytes(0)}}},
    {.name = "NarrowLinksThatGoOnByThemselves",
     .machine = {.accelerators = 2,
                 .budget = KiB(16),
                 .visibility = sim::Visibility::random,
                 .peers = false,
                 .links = {.part = Bytes(512), .few = 1, .enough = Bytes(0)},
                 .unseen = true}},
    {.name = "OneAcceleratorHardlyFits",
     .machine = {.accelerators = 1, .budget = Bytes(5 * 2048)},
     .threads = 4},
    {.name = "WithDiskWithoutPeers",
     .machine = {.accelerators = 2,
                 .budget = KiB(16),
                 .host_budget = KiB(48),
                 .disk_budget = MiB(4),
                 .peers = false}},
    {.name = "HostComputesToo",
     .machine = {.accelerators = 2,
                 .budget = KiB(16),
                 .host_budget = KiB(64),
                 .disk_budget = MiB(4),
                 .visibility = sim::Visibility::random,
                 .host_computes = true}},
    {.name = "TightHost", .machine = {.accelerators = 2, .budget = KiB(20), .host_budget = KiB(112)}},
};

INSTANTIATE_TEST_SUITE_P(Machines, ThreadsTest, testing::ValuesIn(kThreadCases),
                         [](const testing::TestParamInfo<StressCase>& test) { return test.param.name; });

}  // namespace
}  // namespace innkeeper::test
