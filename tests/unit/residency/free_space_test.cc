// Making space inside an allocation: the order of measures, budgets, counters.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <thread>

#include "support/filled.h"
#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

class FreeSpaceTest : public testing::TestWithParam<sim::Visibility> {};

TEST_P(FreeSpaceTest, I4FourTimesTheBudgetFitsAndTheBudgetHolds) {
  Machine machine({.budget = Bytes(4 * kSize), .visibility = GetParam()});
  const std::vector<Block*> blocks = fill(machine, machine.sim(), 16);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      Result<Contents> seen = machine.read(*blocks[i], machine.sim());
      ASSERT_TRUE(seen.ok());
      ASSERT_TRUE(seen.value() == pattern(kSize, i)) << i;
      ASSERT_LE(machine->device(machine.sim()).live(), Bytes(4 * kSize));
    }
  }
  const Stats stats = machine->stats();
  const NodeStats& row = stats.nodes.at("sim:0");
  EXPECT_EQ(row.peak, row.budget);
  EXPECT_EQ(row.recount, row.resident);
  EXPECT_EQ(row.replicas, row.resident) << "no kernel holds any memory";
  EXPECT_GT(stats.evictions, 0);
  EXPECT_GT(stats.fetches, 0);
  EXPECT_EQ(stats.fetches * static_cast<int64_t>(kSize), stats.bytes_fetched);
  EXPECT_EQ(stats.bytes_written_back, static_cast<int64_t>(16 * kSize)) << "clean bytes leave without a copy";
  check_and_destroy(machine, blocks, machine.sim());
}

TEST_P(FreeSpaceTest, KernelsMakeRoomForTheirResultsAndScratch) {
  Machine machine({.budget = Bytes(4 * kSize), .visibility = GetParam()});
  const NodeId node = machine.sim();
  std::vector<Block*> blocks = fill(machine, node, 4);
  for (uint64_t i = 0; i < 12; ++i) {
    Block* input = blocks.at(i);
    Result<Block*> made =
        machine.run_for_result(node, {{.block = input}}, Bytes(kSize), Bytes(2 * kSize), [&](auto operands) {
          EXPECT_TRUE(std::equal(operands[0].begin(), operands[0].end(), pattern(kSize, i).begin()));
          const Contents result = pattern(kSize, i + 4);
          std::copy(result.begin(), result.end(), operands[1].begin());
        });
    ASSERT_TRUE(made.ok()) << made.status().message();
    blocks.push_back(made.value());
    EXPECT_EQ(machine->check_invariants(), "");
  }
  check_and_destroy(machine, blocks, node);
}

TEST_P(FreeSpaceTest, DropsSparesOfTheSameAgeFirst) {
  Machine machine({.budget = Bytes(3 * kSize), .visibility = GetParam()});
  const std::vector<Block*> blocks = fill(machine, machine.sim(), 3);
  ASSERT_TRUE(machine->requests().write_back(*blocks[2]).ok());
  std::vector<Access> all;
  for (Block* block : blocks) all.push_back({.block = block});
  ASSERT_TRUE(machine.run(machine.sim(), all, [](auto) {}).ok());
  const int64_t written = machine->stats().bytes_written_back;
  ASSERT_TRUE(machine->device(machine.sim()).allocate(Bytes(kSize)).ok());
  EXPECT_FALSE(machine->table().has_replica(*blocks[2], machine.sim())) << "it was a spare copy";
  EXPECT_EQ(machine->stats().bytes_written_back, written);
  check_and_destroy(machine, blocks, machine.sim());
}

TEST_P(FreeSpaceTest, SpillsToDiskBeyondTheHost) {
  Machine machine({.budget = Bytes(3 * kSize),
                   .host_budget = Bytes(4 * kSize),
                   .disk_budget = MiB(1),
                   .visibility = GetParam()});
  const std::vector<Block*> blocks = fill(machine, machine.sim(), 16);
  EXPECT_GE(machine->used(machine.disk()), Bytes(9 * kSize));
  EXPECT_LE(machine->device(machine.host()).live(), Bytes(4 * kSize));
  const Stats stats = machine->stats();
  EXPECT_EQ(stats.bytes_to_disk, machine->used(machine.disk()).count());
  EXPECT_EQ(stats.bytes_from_disk, 0);
  for (const auto& [name, row] : stats.nodes) {
    EXPECT_LE(row.peak, row.budget) << name;
    EXPECT_EQ(row.recount, row.resident) << name;
  }
  EXPECT_TRUE(machine.read(*blocks[0], machine.sim()).value() == pattern(kSize, 0));
  EXPECT_EQ(machine->stats().bytes_from_disk, static_cast<int64_t>(kSize));
  check_and_destroy(machine, blocks, machine.sim());
}

TEST(FreeSpace, ADiskIsOfferedOnlyWhereSomethingCouldLeave) {
  Machine machine({.host_budget = Bytes(2 * kSize)});
  Block* const pinned = machine.make(machine.sim(), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().pin(*pinned, machine.host()).ok());
  const Status status =
      machine->evictor().reserve(machine.host(), Bytes(2 * kSize), Reserve::may_evict).status();
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_EQ(status.message().find("add a disk node"), std::string::npos) << status.message();
  machine->requests().unpin(*pinned);
  machine->destroy(pinned);
}

// The least recently used block does not fit on the disk; a smaller one does, and a spare needs no space.
TEST_P(FreeSpaceTest, BlocksThatTheDiskCannotHoldStayAndSmallerOnesAreEvicted) {
  constexpr size_t kLarge = 3 * kSize;
  Machine machine({.budget = Bytes(3 * kSize),
                   .host_budget = Bytes(5 * kSize),
                   .disk_budget = Bytes(2 * kSize),
                   .visibility = GetParam()});
  Block* const large = machine.make(machine.host(), pattern(kLarge, 100)).value();
  const std::vector<Block*> blocks = fill(machine, machine.host(), 2);
  Result<Block*> third = machine.make(machine.host(), pattern(kSize, 2));
  ASSERT_TRUE(third.ok()) << third.status().message();
  Result<Block*> fourth = machine.make(machine.host(), pattern(kSize, 3));
  ASSERT_TRUE(fourth.ok()) << fourth.status().message();
  Result<Block*> fifth = machine.make(machine.host(), pattern(kSize, 4));
  ASSERT_FALSE(fifth.ok()) << "the disk is full, too";
  EXPECT_EQ(fifth.status().code(), Code::out_of_memory);
  EXPECT_EQ(fifth.status().message().find("add a disk node"), std::string::npos) << fifth.status().message();
  // A GPU has a copy of the large one: now it need not be written to leave.
  EXPECT_TRUE(machine.read(*large, machine.sim()).value() == pattern(kLarge, 100));
  fifth = machine.make(machine.host(), pattern(kSize, 4));
  ASSERT_TRUE(fifth.ok()) << fifth.status().message();
  EXPECT_EQ(machine->stats().bytes_written_back, 2 * static_cast<int64_t>(kSize));
  EXPECT_TRUE(machine.read(*large, machine.sim()).value() == pattern(kLarge, 100));
  machine->destroy(large);
  check_and_destroy(machine, {blocks[0], blocks[1], third.value(), fourth.value(), fifth.value()},
                    machine.host());
}

// Blocks of several sizes that just fit the host and the disk: the engine does not cancel a spill in flight
// for another block that is to go to the disk.
TEST_P(FreeSpaceTest, WhatGoesToAFullDiskArrives) {
  Machine machine(
      {.host_budget = Bytes(3 * kSize), .disk_budget = Bytes(11 * kSize / 2), .visibility = GetParam()});
  std::vector<Block*> blocks;
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 12; ++i) {
    sizes.push_back(kSize / 4 * (1 + i % 4));
    Result<Block*> made = machine.make(machine.host(), pattern(sizes.back(), i));
    ASSERT_TRUE(made.ok()) << made.status().message();
    blocks.push_back(made.value());
  }
  int64_t asked = 0;
  int refused = 0;
  for (size_t i = 0; i < 400; ++i) {
    const size_t which = i * 7 % 12;
    const Status wrote = machine.write(*blocks[which], machine.host(), pattern(sizes[which], which));
    asked += static_cast<int64_t>(sizes[which]);
    // The timing of the disk's threads decides which blocks leave first. Now and then all blocks that remain
    // at the host are larger than the disk's free space, and the largest blocks cannot come back.
    if (wrote.code() == Code::out_of_memory) {
      ++refused;
      continue;
    }
    ASSERT_TRUE(wrote.ok()) << wrote.message();
  }
  EXPECT_LT(refused, 20);
  EXPECT_GT(machine->stats().bytes_to_disk, 0);
  EXPECT_LE(machine->stats().bytes_to_disk, asked);
  for (Block* block : blocks) machine->destroy(block);
}

TEST_P(FreeSpaceTest, AFullHostWithoutDiskRefusesAndLosesNothing) {
  Machine machine({.budget = Bytes(2 * kSize), .host_budget = Bytes(2 * kSize), .visibility = GetParam()});
  const std::vector<Block*> blocks = fill(machine, machine.sim(), 4);
  const Result<Block*> fifth = machine.make(machine.sim(), pattern(kSize, 4));
  ASSERT_FALSE(fifth.ok());
  EXPECT_EQ(fifth.status().code(), Code::out_of_memory);
  EXPECT_NE(fifth.status().message().find("host is out of memory"), std::string::npos)
      << fifth.status().message();
  EXPECT_NE(fifth.status().message().find("add a disk node"), std::string::npos);
  EXPECT_EQ(machine->check_invariants(), "");
  for (size_t i = 0; i < 4; ++i) {  // Each block is on one node: all eight places hold four blocks.
    EXPECT_EQ(machine->requests().where(*blocks[i]).size(), 1u);
  }
  machine->destroy(blocks[3]);
  check_and_destroy(machine, {blocks.begin(), blocks.begin() + 3}, machine.sim());
}

TEST_P(FreeSpaceTest, TheHostTrainsPastItsMemory) {
  Machine machine(
      {.accelerators = 0, .host_budget = Bytes(3 * kSize), .disk_budget = MiB(1), .visibility = GetParam()});
  const std::vector<Block*> blocks = fill(machine, machine.host(), 12);
  for (uint64_t round = 1; round < 3; ++round) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_TRUE(machine
                      .run(machine.host(), {{.block = blocks[i], .write = true}},
                           [](auto operands) {
                             for (unsigned char& byte : operands[0])
                               byte = static_cast<unsigned char>(byte ^ 0x55);
                           })
                      .ok());
    }
  }
  EXPECT_LE(machine->device(machine.host()).live(), Bytes(3 * kSize));
  check_and_destroy(machine, blocks, machine.host());
}

TEST_P(FreeSpaceTest, BudgetsGoDownAndUp) {
  Machine machine({.budget = Bytes(8 * kSize), .visibility = GetParam()});
  const NodeId node = machine.sim();
  const std::vector<Block*> blocks = fill(machine, node, 8);
  ASSERT_TRUE(machine->requests().pin(*blocks[7], node).ok());
  EXPECT_TRUE(machine->set_budget(node, Bytes(3 * kSize)).ok());
  EXPECT_LE(machine->device(node).live(), Bytes(3 * kSize));
  EXPECT_TRUE(machine->table().has_replica(*blocks[7], node));
  EXPECT_EQ(machine->set_budget(node, Bytes(0)).code(), Code::invalid_argument);
  const Status refused = machine->set_budget(node, Bytes(kSize / 2));
  EXPECT_EQ(refused.code(), Code::out_of_memory);
  EXPECT_NE(refused.message().find("a budget of 2048 B for sim:0 is less than the 4096 B"), std::string::npos)
      << refused.message();
  EXPECT_EQ(machine->budget(node), Bytes(3 * kSize)) << "the old one stays";
  EXPECT_TRUE(machine->set_budget(node, Bytes(16 * kSize)).ok());
  machine->requests().unpin(*blocks[7]);
  const int64_t before = machine->stats().evictions;
  for (Block* block : blocks) ASSERT_TRUE(machine.read(*block, node).ok());
  EXPECT_EQ(machine->stats().evictions, before) << "there is room for all";
  check_and_destroy(machine, blocks, node);
}

// Space may become free between the check of the budget and the choice of victims: then no shortage is left,
// and the search must end.
TEST(FreeSpace, NothingIsEvictedForNoShortfall) {
  Machine machine({.accelerators = 1, .budget = Bytes(16 * kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  const NodeId node = machine.sim(0);
  Result<Block*> block = machine.make(node, pattern(kSize, 1));
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(machine->evictor().relieve(node, Bytes(0)).code(), Code::out_of_memory);
  EXPECT_TRUE(machine->table().has_replica(*block.value(), node));
  EXPECT_EQ(machine->stats().evictions, 0);
  machine->destroy(block.value());
}

TEST(FreeSpace, SparesLeaveBeforeOwnersThatAreOlder) {
  Machine machine({.budget = Bytes(4 * kSize)});
  const NodeId node = machine.sim();
  std::vector<Block*> left;
  machine->set_observers({.memory = [&](Block& block, NodeId where, void* data) {
    if (where == node && data == nullptr) left.push_back(&block);
  }});
  const std::vector<Block*> blocks = fill(machine, node, 4);
  ASSERT_TRUE(machine->requests().write_back(*blocks[2]).ok());
  ASSERT_TRUE(machine->set_budget(node, Bytes(kSize)).ok());
  EXPECT_EQ(left, (std::vector<Block*>{blocks[2], blocks[0], blocks[1]}));
  check_and_destroy(machine, blocks, node);
}

TEST(FreeSpace, AFreshResultIsYoungerThanWhatWasUsedBeforeIt) {
  Machine machine({.budget = Bytes(2 * kSize)});
  const NodeId node = machine.sim();
  const std::vector<Block*> blocks = fill(machine, node, 1);
  ASSERT_TRUE(machine.read(*blocks[0], node).ok());
  Block* fresh = machine.make(node, pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->device(node).allocate(Bytes(kSize)).ok());
  EXPECT_FALSE(machine->table().has_replica(*blocks[0], node));
  EXPECT_TRUE(machine->table().has_replica(*fresh, node));
  check_and_destroy(machine, {blocks[0], fresh}, node);
}

TEST(FreeSpace, OneOfSeveralVictimsThatCannotLeaveIsTriedAgain) {
  FaultPlan faults;
  Machine machine({.budget = Bytes(4 * kSize), .faults = &faults});
  const NodeId node = machine.sim();
  const std::vector<Block*> blocks = fill(machine, node, 4);
  faults.arm(2, static_cast<unsigned>(Fault::copy));
  EXPECT_TRUE(machine->set_budget(node, Bytes(kSize)).ok());
  EXPECT_EQ(faults.hits(), 1);
  EXPECT_LE(machine->used(node), Bytes(kSize));
  faults.arm(1, static_cast<unsigned>(Fault::copy), 100);
  EXPECT_EQ(machine->device(node).allocate(Bytes(kSize)).status().code(), Code::io_error) << "none can leave";
  faults.disarm();
  check_and_destroy(machine, blocks, node);
}

TEST(FreeSpace, APeerKeepsAQuarterOfItsBudgetForItself) {
  Machine machine({.accelerators = 2, .budget = Bytes(4 * kSize)});
  const NodeId peer = machine.sim(1);
  const std::vector<Block*> theirs = fill(machine, peer, 2);
  const std::vector<Block*> ours = fill(machine, machine.sim(0), 3);
  ASSERT_TRUE(machine->set_budget(machine.sim(0), Bytes(kSize)).ok());
  EXPECT_EQ(machine->requests().where(*ours[0]), std::vector<NodeId>{peer});
  EXPECT_EQ(machine->requests().where(*ours[1]), std::vector<NodeId>{machine.host()});
  EXPECT_EQ(machine->free(peer), Bytes(kSize));
  for (Block* block : theirs) machine->destroy(block);
  check_and_destroy(machine, ours, machine.sim(0));
}

// Both kernels began while there was free space, so neither has the admission: the last one to ask fails, and
// the other goes on.
TEST(FreeSpace, KernelsThatWaitForEachOthersMemoryDoNotDeadlock) {
  Machine machine({.budget = Bytes(2 * kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  const NodeId node = machine.sim();
  std::barrier both(2);
  std::array<Status, 2> got;
  const auto kernel = [&](Status& outcome) {
    const NodeAdmission scope = machine.engine().admit(node, Bytes(0));
    both.arrive_and_wait();
    const Result<Memory> held = machine->device(node).allocate(Bytes(kSize));
    both.arrive_and_wait();
    outcome = held.ok() ? machine->device(node).allocate(Bytes(kSize)).status() : held.status();
  };
  std::thread other([&] { kernel(got[0]); });
  kernel(got[1]);
  other.join();
  EXPECT_NE(got[0].ok(), got[1].ok());
  EXPECT_EQ((got[0].ok() ? got[1] : got[0]).code(), Code::out_of_memory);
  EXPECT_EQ(machine->used(node), Bytes(0));
}

// A node that one block fills, whose memory a user's pointer holds while `held` is true.
struct Escaped {
  Escaped() {
    machine->set_observers({.escapes = [this](Block&, NodeId) { return held; }});
    blocks = fill(machine, node, 1);
    Access access{.block = blocks[0]};
    EXPECT_TRUE(machine->acquire(node, std::span(&access, 1)).ok());
    machine->keep_escaped(node, access);
  }
  ~Escaped() { check_and_destroy(machine, blocks, node); }

  Machine machine{{.budget = Bytes(kSize)}};
  const NodeId node = machine.sim();
  bool held = true;
  std::vector<Block*> blocks;
};

TEST(FreeSpace, I12AnEscapedReplicaIsEvictedOnceItIsReleased) {
  Escaped it;
  EXPECT_EQ(it.machine->device(it.node).allocate(Bytes(kSize)).status().code(), Code::out_of_memory);
  it.held = false;
  EXPECT_TRUE(it.machine->device(it.node).allocate(Bytes(kSize)).ok());
  EXPECT_FALSE(it.machine->table().has_replica(*it.blocks[0], it.node));
}

TEST(FreeSpace, I12EvictingAllTakesReleasedEscapedReplicas) {
  Escaped it;
  ASSERT_TRUE(it.machine->evictor().evict_all().ok());
  EXPECT_TRUE(it.machine->table().has_replica(*it.blocks[0], it.node));
  it.held = false;
  ASSERT_TRUE(it.machine->evictor().evict_all().ok());
  EXPECT_FALSE(it.machine->table().has_replica(*it.blocks[0], it.node));
}

TEST_P(FreeSpaceTest, HostMemoryThatCopiesStillReadIsWaitedFor) {
  Machine machine({.budget = Bytes(8 * kSize), .host_budget = Bytes(2 * kSize), .visibility = GetParam()});
  const std::vector<Block*> blocks = fill(machine, machine.sim(), 2);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(machine->requests().evict(*blocks[i]).ok());
    // Operators fetch and write at once: the host drops its replicas while the copies still read them.
    for (uint64_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(machine.run(machine.sim(), {{.block = blocks[i], .write = true}}, [](auto) {}).ok());
    }
    EXPECT_EQ(machine->check_invariants(), "");
  }
  check_and_destroy(machine, blocks, machine.sim());
}

TEST_P(FreeSpaceTest, AThreadWithoutSpaceWaitsForAsyncPins) {
  Machine machine({.budget = Bytes(2 * kSize), .visibility = GetParam()});
  const NodeId node = machine.sim();
  const std::vector<Block*> blocks = fill(machine, node, 2);
  std::vector<Block*> more;
  std::array<Access, 2> accesses{{{.block = blocks[0], .write = true}, {.block = blocks[1]}}};
  ASSERT_TRUE(machine->pin_async(node, accesses).ok());
  std::atomic<bool> ended = false;
  std::thread other([&] {
    more = fill(machine, node, 3);  // No space is free before the pins end.
    EXPECT_TRUE(ended);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::thread end([&] {  // A thread that has not pinned the operands itself.
    ended = true;
    machine->unpin_async(node, accesses);
  });
  other.join();
  end.join();
  for (Block* block : more) machine->destroy(block);
  check_and_destroy(machine, blocks, node);
}

INSTANTIATE_TEST_SUITE_P(Visibilities, FreeSpaceTest,
                         testing::Values(sim::Visibility::early, sim::Visibility::late,
                                         sim::Visibility::random));

TEST(FreeSpace, HostMemoryThatACopyStillReadIsCountedUntilItIsDone) {
  Machine machine;
  Block* block = machine.make(machine.sim(), pattern(3000, 1)).value();
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  ASSERT_TRUE(machine.write(*block, machine.sim(), pattern(3000, 2)).ok());  // The host's replica is dropped.
  machine.gpu(machine.sim())->synchronize();
  const Stats stats = machine->stats();
  EXPECT_EQ(stats.nodes.at("host").resident, 0);
  EXPECT_EQ(stats.nodes.at("host").recount, 0);
  machine->destroy(block);
}

TEST(FreeSpace, CountingCanRestart) {
  Machine machine({.budget = Bytes(2 * kSize)});
  const std::vector<Block*> blocks = fill(machine, machine.sim(), 4);
  ASSERT_TRUE(machine.read(*blocks[0], machine.sim()).ok());
  const Stats before = machine->stats();
  EXPECT_TRUE(before.ops > 0 && before.fetches > 0 && before.evictions > 0 && before.bytes_fetched > 0);
  EXPECT_GT(before.nodes.at("host").peak, 0);
  EXPECT_GT(before.nodes.at("sim:0").evictions, 0);
  ASSERT_TRUE(machine->evictor().evict_all().ok());
  machine->reset_stats();
  const Stats after = machine->stats();
  EXPECT_EQ(after.ops + after.fetches + after.evictions + after.bytes_fetched + after.bytes_written_back, 0);
  EXPECT_EQ(after.nodes.at("sim:0").ops + after.nodes.at("sim:0").evictions, 0);
  EXPECT_EQ(after.nodes.at("sim:0").peak, 0);
  EXPECT_EQ(after.nodes.at("host").peak, after.nodes.at("host").resident);
  EXPECT_EQ(after.nodes.at("host").resident, 4 * static_cast<int64_t>(kSize));
  check_and_destroy(machine, blocks, machine.sim());
}

}  // namespace
}  // namespace innkeeper::test
