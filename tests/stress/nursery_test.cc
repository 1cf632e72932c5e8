// Many threads make blocks and destroy them where there is free space, most of them before another thread
// looks. Meanwhile other threads read the statistics, check the invariants, request space, and move blocks of
// their own. Each block is listed once or never, no bytes are lost, and no request fails for want of space.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/block_owner.h"
#include "support/environment.h"
#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

constexpr size_t kCrowdBlockSize = 300;

class Vendor : BlockOwner {
 public:
  Vendor(Machine& machine, uint64_t seed, bool moves) : BlockOwner(machine, seed), moves_(moves) {}

  void run(uint64_t steps) {
    for (uint64_t step = 0; step < steps && !testing::Test::HasFailure(); ++step) fused_factories();
    while (!blocks_.empty()) release_any();
  }

 private:
  void make() {
    Contents contents = pattern(kCrowdBlockSize, random_());
    Result<Block*> made = machine_.make(any_node(), contents);
    ASSERT_TRUE(made.ok()) << made.status().message();
    blocks_.push_back({made.value(), std::move(contents)});
  }
  void release_last() {
    if (blocks_.empty()) return;
    machine_->destroy(blocks_.back().block);
    blocks_.pop_back();
  }
  void release_any() {
    std::swap(any(), blocks_.back());
    release_last();
  }
  void fused_factories() {
    if (blocks_.empty()) return make();
    switch (below(moves_ ? 12 : 8)) {
      case 0:
      case 1:
      case 2: return blocks_.size() < 40 ? make() : release_any();
      case 3:
      case 4: return release_any();
      case 5:
      case 6: make(); return release_last();
      case 7: return check(any());
      case 8: return (void)machine_->requests().prefetch(*any().block, any_node());
      case 9: return (void)machine_->requests().write_back(*any().block);
      case 10: {
        Block& block = *any().block;
        if (machine_->requests().pin(block, any_node()).ok()) machine_->requests().unpin(block);
        return;
      }
      default: return (void)machine_->requests().evict(*any().block);
    }
  }

  const bool moves_;
};

struct Crowd {
  const char* name;
  bool moves = false;    // Vendors move their blocks.
  bool looks = false;    // A looker reads statistics and checks invariants.
  bool shrinks = false;  // The looker also evicts and asks for space.
};

class NurseryStress : public testing::TestWithParam<Crowd> {};

TEST_P(NurseryStress, EachIsListedOnceOrNever) {
  const Crowd& crowd = GetParam();
  const uint64_t steps = from_environment("INNKEEPER_STEPS", 10000);
  const uint64_t seed = from_environment("INNKEEPER_SEED", 1);
  SCOPED_TRACE("INNKEEPER_SEED=" + std::to_string(seed));
  Machine machine({.accelerators = 2, .budget = MiB(8), .host_computes = true});
  const Watchdog watchdog(std::chrono::seconds(300));
  std::atomic<bool> over = false;
  std::thread looker;
  if (crowd.looks || crowd.shrinks) {
    looker = std::thread([&] {
      std::mt19937_64 random(seed);
      while (!over) {
        if (crowd.looks) {
          const Stats stats = machine->stats();
          EXPECT_GE(stats.nodes.at("sim:0").replicas, 0);
          EXPECT_EQ(machine->check_invariants(), "");
        }
        if (crowd.shrinks && random() % 4 == 0) (void)machine->evictor().evict_all();
        if (crowd.shrinks && random() % 4 == 0) (void)machine->evictor().relieve(machine.sim(), KiB(4));
        std::this_thread::yield();
      }
    });
  }
  std::vector<std::thread> vendors;
  for (uint64_t i = 0; i < 4; ++i)
    vendors.emplace_back([&, i] { Vendor(machine, seed * 100 + i, crowd.moves).run(steps); });
  for (std::thread& vendor : vendors) vendor.join();
  over = true;
  if (looker.joinable()) looker.join();
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_EQ(machine->table().block_count(), 0U);
  for (const auto& [name, row] : machine->stats().nodes) {
    EXPECT_EQ(row.replicas, 0) << name;
    EXPECT_EQ(row.resident, 0) << name;
    EXPECT_EQ(row.recount, 0) << name;
  }
}

const Crowd kCrowds[] = {
    {.name = "Alone"},
    {.name = "Looked", .looks = true},
    {.name = "Moved", .moves = true},
    {.name = "MovedAndLookedFor", .moves = true, .looks = true, .shrinks = true},
};

INSTANTIATE_TEST_SUITE_P(Crowds, NurseryStress, testing::ValuesIn(kCrowds),
                         [](const testing::TestParamInfo<Crowd>& test) { return test.param.name; });

// No request fails where the only space is the space that other threads are about to free. A thread's bytes
// are in its operator, in a place, listed, or on their way out.
TEST(NurseryStress, MemoryOfOtherThreadsBlocksIsWaitedFor) {
  const uint64_t rounds = from_environment("INNKEEPER_STEPS", 300);
  const Watchdog watchdog(std::chrono::seconds(300));
  for (uint64_t round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    Machine machine({.budget = KiB(64)});
    const NodeId node = machine.sim();
    std::atomic<int> ready = 0;
    const auto together = [&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
    };
    std::thread producer([&] {
      together();
      for (uint64_t i = 0; i < 5 + round % 20; ++i) {
        Result<Block*> made = machine.make(node, pattern(24 * 1024, 1));
        if (made.ok())
          machine->destroy(
              made.value());  // Fails while the other thread has the space outside of an operator.
      }
    });
    together();
    Result<Memory> memory = machine->device(node).allocate(KiB(56));
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    memory = Memory();
    producer.join();
    EXPECT_EQ(machine->check_invariants(), "");
  }
}

}  // namespace
}  // namespace innkeeper::test
