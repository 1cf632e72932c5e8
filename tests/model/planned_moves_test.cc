// Quality of plans for periods over equal blocks: the number of fetches, the number of blocks present in
// time, and the share of each concurrent program.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

// The mark of a policy that knows the future: ten equal blocks read in a fixed order, space for nine.
TEST(Periods, OfTenBlocksWithSpaceForNineFetchOne) {
  Machine machine({.budget = KiB(36)});
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 10; ++i) blocks.push_back(machine.make(machine.sim(), pattern(4096, i)).value());
  const auto pass = [&] {
    const int64_t before = machine->stats().fetches;
    for (uint64_t i = 0; i < 10; ++i)
      EXPECT_EQ(machine.read(*blocks[i], machine.sim()).value(), pattern(4096, i));
    return machine->stats().fetches - before;
  };
  for (int i = 0; i < 5; ++i) (void)pass();
  int64_t fetches = 0;
  for (int i = 0; i < 10; ++i) fetches += pass();
  EXPECT_LE(fetches, 15) << "least recently used first fetches 100";
  machine->plans().set_planning(false);
  (void)pass();
  EXPECT_EQ(pass(), 10);
  for (Block* block : blocks) machine->destroy(block);
}

// Blocks read in a fixed order, more than fit a GPU and the host, or the host alone: a block on the disk is
// under way before an operator needs it.
void read_ahead(const MachineOptions& options) {
  Machine machine(options);
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 24; ++i) blocks.push_back(machine.make(machine.sim(), pattern(4096, i)).value());
  uint64_t version = 0;
  const auto late = [&] {  // Counts the late blocks of a period.
    int count = 0;
    for (Block* block : blocks) {
      EXPECT_TRUE(machine->synchronize().ok());
      const auto there = [&](NodeId node) {
        return block->replica(node).word.state() != ReplicaState::absent;
      };
      if (!there(machine.sim()) && !there(machine.host())) ++count;
      EXPECT_TRUE(machine.write(*block, machine.sim(), pattern(4096, ++version)).ok());
    }
    return count;
  };
  for (int i = 0; i < 44; ++i) (void)late();  // Eleven periods are planned together.
  EXPECT_LE(late(), 2) << "of 24";
  const PeriodStats period = machine->plans().planning().period;
  EXPECT_GT(period.bytes_planned, KiB(30).count());
  EXPECT_NEAR(static_cast<double>(period.bytes_fetched), static_cast<double>(period.bytes_planned),
              static_cast<double>(period.bytes_planned) / 4);
  machine->plans().set_planning(false);
  (void)late();
  EXPECT_GT(late(), 4) << "without a plan";
  for (Block* block : blocks) machine->destroy(block);
}

TEST(Periods, ReadAheadFromADiskBelowAGpu) {
  read_ahead({.budget = KiB(36), .host_budget = KiB(40), .disk_budget = MiB(8)});
}

TEST(Periods, ReadAheadFromADiskBelowAHostThatComputes) {
  read_ahead({.accelerators = 0, .host_budget = KiB(60), .disk_budget = MiB(8)});
}

// A program that leaves its plan may not need the planned blocks: the engine cancels fetches whose copy has
// not begun.
TEST(Periods, WhatHasNoCopyYetIsNotFetchedWhereTheProgramLeavesItsPlan) {
  Machine machine({.budget = KiB(64), .links = {.part = KiB(1), .few = 1, .enough = Bytes(0)}});
  const NodeId gpu = machine.sim();
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 40; ++i) blocks.push_back(machine.make(gpu, pattern(4096, i)).value());
  Block* const other = machine.make(gpu, pattern(64, 1)).value();
  const auto waiting = [&] {
    return std::count_if(blocks.begin(), blocks.end(), [&](const Block* block) {
      const Move* const move = block->replica(gpu).copies.move();
      return move != nullptr && move->state() == MoveState::reserved;
    });
  };
  std::ptrdiff_t most = 0;
  for (int period = 0; period < 60; ++period) {
    for (uint64_t i = 0; i < blocks.size(); ++i) {
      ASSERT_TRUE(machine.read(*blocks[i], gpu).ok());
      if (period % 8 != 7 || waiting() == 0) continue;
      most = std::max(most, waiting());
      ASSERT_TRUE(machine.read(*other, gpu).ok());  // The block is not part of the period.
      EXPECT_EQ(waiting(), 0);
    }
  }
  EXPECT_GT(most, 0) << "else nothing was tried";
  for (uint64_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], gpu).value(), pattern(4096, i));
  for (Block* block : blocks) machine->destroy(block);
  machine->destroy(other);
}

// Blocks that another thread fetches count as fetched in the period, as do those that the engine's own thread
// fetches through a disk.
TEST(Periods, CountBytesThatOtherThreadsFetchForThem) {
  Machine machine({.budget = KiB(36)});
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 24; ++i) blocks.push_back(machine.make(machine.sim(), pattern(4096, i)).value());
  for (int i = 0; i < 44; ++i) {
    for (uint64_t k = 0; k < 24; ++k) {
      std::thread([&] {
        EXPECT_TRUE(machine->requests().evict(*blocks[k]).ok());
        EXPECT_TRUE(machine->requests().prefetch(*blocks[k], machine.sim()).ok());
      }).join();
      EXPECT_EQ(machine.read(*blocks[k], machine.sim()).value(), pattern(4096, k));
    }
  }
  EXPECT_GE(machine->plans().planning().period.bytes_fetched, KiB(4 * 24).count());
  for (Block* block : blocks) machine->destroy(block);
}

// A program of hardly any bytes runs concurrently with a large one: it has its working set, and the large one
// has the rest of the GPU and of the host.
TEST(Periods, AProgramThatFitsLeavesTheRestToOthers) {
  Machine machine({.budget = KiB(36), .host_budget = KiB(140), .disk_budget = MiB(8)});
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 24; ++i) blocks.push_back(machine.make(machine.sim(), pattern(4096, i)).value());
  std::array<Block*, 2> tiny{};
  for (Block*& block : tiny) block = machine.make(machine.sim(), pattern(64, 1)).value();
  std::barrier together(2);
  constexpr int kPeriods = 400;
  std::thread beside([&] {
    for (int i = 0; i < kPeriods; ++i) {
      together.arrive_and_wait();
      for (int k = 0; k < 4; ++k) {
        for (Block* block : tiny) EXPECT_TRUE(machine.write(*block, machine.sim(), pattern(64, 1)).ok());
      }
    }
  });
  uint64_t version = 0;
  int64_t moved_before = 0;
  for (int i = 0; i < kPeriods; ++i) {
    if (i == kPeriods - 44) moved_before = machine->stats().bytes_fetched;
    together.arrive_and_wait();
    for (Block* block : blocks) {
      EXPECT_TRUE(machine->synchronize().ok());
      EXPECT_TRUE(machine.write(*block, machine.sim(), pattern(4096, ++version)).ok());
    }
  }
  beside.join();
  const double fetched = static_cast<double>(machine->stats().bytes_fetched - moved_before) / 44 / 4096;
  EXPECT_LE(fetched, 19) << "with half of the GPU's room 21 of 24 arrive";
  EXPECT_EQ(machine->stats().nodes.at("disk").peak, 0) << "all that is away fits the host";
  for (Block* block : blocks) machine->destroy(block);
  for (Block* block : tiny) machine->destroy(block);
}

// Two programs at one node, pass by pass concurrently. Each reads ten blocks in a fixed order, and its share
// has space for nine. Blocks that one's thread made and the other's uses belong to the program that goes on
// using them.
TEST(Periods, OfTwoThreadsAreEachPlannedFor) {
  Machine machine({.budget = KiB(72)});
  std::array<std::vector<Block*>, 2> blocks;
  for (uint64_t i = 0; i < 20; ++i)
    blocks.at(i / 10).push_back(machine.make(machine.sim(), pattern(4096, i)).value());
  constexpr int kWarmUp = 200;  // passes
  constexpr int kPasses = 100;
  int passes = 0;
  int64_t before = 0;
  std::barrier together(2, [&]() noexcept {
    if (passes++ == kWarmUp) before = machine->stats().fetches;
  });
  const auto program = [&](size_t which) {
    for (int pass = 0; pass < kWarmUp + kPasses; ++pass) {
      together.arrive_and_wait();
      for (uint64_t i = 0; i < 10; ++i) {
        EXPECT_EQ(machine.read(*blocks.at(which).at(i), machine.sim()).value(),
                  pattern(4096, 10 * which + i));
      }
    }
  };
  std::thread other(program, 1);
  program(0);
  other.join();
  const int64_t fetches = machine->stats().fetches - before;
  EXPECT_LE(fetches, 3 * 2 * kPasses) << "least recently used first fetches up to ten a pass each";
  EXPECT_GT(fetches, 0);
  EXPECT_EQ(machine->check_invariants(), "");
  for (const auto& each : blocks) {
    for (Block* block : each) machine->destroy(block);
  }
}

}  // namespace
}  // namespace innkeeper::test
