// Copies between nodes: for each wait that the engine must not forget, a program that would break without it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

class TransferTest : public testing::TestWithParam<sim::Visibility> {
 protected:
  MachineOptions options(size_t accelerators = 2, Bytes budget = KiB(64)) const {
    return {.accelerators = accelerators, .budget = budget, .visibility = GetParam()};
  }
  static Block* make(Machine& machine, NodeId node, uint64_t version) {
    Result<Block*> made = machine.make(node, pattern(kSize, version));
    IK_CHECK(made.ok(), made.status().message());
    return made.value();
  }
  static void expect(Machine& machine, Block& block, NodeId node, uint64_t version) {
    Result<Contents> seen = machine.read(block, node);
    ASSERT_TRUE(seen.ok()) << seen.status().message();
    EXPECT_TRUE(seen.value() == pattern(kSize, version)) << "at " << machine->device(node).name();
    EXPECT_EQ(machine->check_invariants(), "");
  }
};

// copy_out waits for the kernel that wrote; copy_in for that copy; the kernel for copy_in.
TEST_P(TransferTest, BytesComeBackFromTheHost) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(), 1);
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.host()});
  expect(machine, *block, machine.sim(), 1);
  machine->destroy(block);
}

// A kernel on the host waits for the copy that fills the host's replica.
TEST_P(TransferTest, TheHostReadsWhatWasWrittenBackWhenItIsThere) {
  for (const bool evicted : {false, true}) {
    Machine machine({.visibility = GetParam(), .host_computes = true});
    Block* block = make(machine, machine.sim(), 1);
    ASSERT_TRUE((evicted ? machine->requests().evict(*block) : machine->requests().write_back(*block)).ok());
    expect(machine, *block, machine.host(), 1);
    ASSERT_TRUE(machine.write(*block, machine.host(), pattern(kSize, 2)).ok());
    expect(machine, *block, machine.sim(), 2);
    machine->destroy(block);
  }
}

TEST_P(TransferTest, PeersCopyDirectly) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  expect(machine, *block, machine.sim(1), 1);
  const Stats stats = machine->stats();
  EXPECT_EQ(stats.bytes_between, static_cast<int64_t>(kSize));
  EXPECT_EQ(stats.bytes_fetched + stats.bytes_written_back, 0);
  // The source may leave while the copy is under way: its memory is not reused before the copy ends.
  ASSERT_TRUE(machine.write(*block, machine.sim(1), pattern(kSize, 2)).ok());
  Block* other = make(machine, machine.sim(0), 3);
  expect(machine, *block, machine.sim(0), 2);
  expect(machine, *other, machine.sim(0), 3);
  machine->destroy(block);
  machine->destroy(other);
}

TEST_P(TransferTest, APeerIsPreferredToTheHost) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().write_back(*block).ok());
  expect(machine, *block, machine.sim(1), 1);
  EXPECT_EQ(machine->stats().bytes_between, static_cast<int64_t>(kSize));
  EXPECT_EQ(machine->stats().bytes_fetched, 0);
  machine->destroy(block);
}

TEST_P(TransferTest, OthersCopyByWayOfTheHost) {
  MachineOptions without = options();
  without.peers = false;
  Machine machine(without);
  Block* block = make(machine, machine.sim(0), 1);
  expect(machine, *block, machine.sim(1), 1);
  EXPECT_EQ(machine->stats().bytes_between, 0);
  EXPECT_EQ(machine->requests().where(*block).size(), 3u);
  // The same while a copy to the host is already under way.
  ASSERT_TRUE(machine.write(*block, machine.sim(0), pattern(kSize, 2)).ok());
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.host()).ok());
  expect(machine, *block, machine.sim(1), 2);
  machine->destroy(block);
}

// I5: a kernel must not overwrite memory that a copy still reads.
TEST_P(TransferTest, AWriterWaitsForTheCopiesThatReadItsOperand) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().write_back(*block).ok());
  EXPECT_TRUE(machine->table().has_replica(*block, machine.sim(0))) << "it keeps the replica";
  Access access{.block = block, .write = true};
  ASSERT_TRUE(machine.run(machine.sim(0), {access}, [](auto operands) { operands[0][0] = 1; }).ok());
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.sim(0)});
  Contents wanted = pattern(kSize, 1);
  wanted[0] = 1;
  Result<Contents> seen = machine.read(*block, machine.sim(0));
  ASSERT_TRUE(seen.ok());
  EXPECT_TRUE(seen.value() == wanted);

  // The other replica leaves before the copy into it is done; the owner is promoted, and written.
  ASSERT_TRUE(machine.write(*block, machine.sim(0), pattern(kSize, 3)).ok());
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok());
  ASSERT_TRUE(machine.write(*block, machine.sim(0), pattern(kSize, 4)).ok());
  expect(machine, *block, machine.sim(1), 4);
  machine->destroy(block);
}

// I5: the copy goes on reading the host's memory after the host dropped its replica.
TEST_P(TransferTest, HostMemoryStaysUntilItsReadersAreDone) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(0)).ok());
  Access access{.block = block, .write = true};
  ASSERT_TRUE(machine->acquire(machine.sim(0), std::span(&access, 1)).ok());
  // The host's replica is dropped. The next use of its memory by the host must not reach the copy.
  Result<Memory> reused = machine->device(machine.host()).allocate(Bytes(kSize));
  ASSERT_TRUE(reused.ok());
  std::fill_n(static_cast<unsigned char*>(reused.value().data()), kSize, static_cast<unsigned char>(99));
  machine.launch(machine.sim(0), std::span(&access, 1), [](auto operands) {
    EXPECT_TRUE(std::equal(operands[0].begin(), operands[0].end(), pattern(kSize, 1).begin()));
  });
  machine->release(machine.sim(0), std::span(&access, 1));
  machine->destroy(block);
}

// I6: a device's memory is reused only after the copies that read it.
TEST_P(TransferTest, DeviceMemoryStaysUntilItsReadersAreDone) {
  Machine machine(options(1, Bytes(2 * kSize)));
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 8; ++i) blocks.push_back(make(machine, machine.sim(0), i));
  for (uint64_t i = 0; i < 8; ++i) expect(machine, *blocks[i], machine.sim(0), i);
  for (Block* block : blocks) machine->destroy(block);
}

// I6: earlier kernels may still use fresh memory; a copy into it waits for them.
TEST_P(TransferTest, ACopyIntoReusedMemoryWaitsForItsEarlierUsers) {
  Machine machine(options(2, Bytes(2 * kSize)));
  Block* far = make(machine, machine.sim(1), 7);
  Block* near = make(machine, machine.sim(0), 8);
  for (int round = 0; round < 4; ++round) {
    {
      const NodeAdmission scope = machine.engine().admit(machine.sim(0), Bytes(0));
      Result<Memory> scratch = machine->device(machine.sim(0)).allocate(Bytes(kSize));
      ASSERT_TRUE(scratch.ok()) << scratch.status().message();
      const sim::WrittenRange written{scratch.value().data(), kSize};
      machine.gpu(machine.sim(0))->begin_kernel(0);
      std::fill_n(static_cast<unsigned char*>(written.data), kSize, static_cast<unsigned char>(99));
      machine.gpu(machine.sim(0))->end_kernel(0, std::span(&written, 1), {});
    }
    ASSERT_TRUE(machine->requests().prefetch(*far, machine.sim(0)).ok());
    expect(machine, *far, machine.sim(0), 7);
    ASSERT_TRUE(machine.write(*far, machine.sim(1), pattern(kSize, 7)).ok());
  }
  expect(machine, *near, machine.sim(0), 8);
  machine->destroy(far);
  machine->destroy(near);
}

TEST_P(TransferTest, PrefetchArrivesAndTheFirstUseWaits) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok());
  EXPECT_EQ(block->replica(machine.sim(1)).word.state(), ReplicaState::arriving);
  const size_t there = options().visibility == sim::Visibility::early ? 2 : 1;
  EXPECT_EQ(machine->requests().where(*block).size(), there)
      << "a copy that is done has come, though nothing has used it";
  EXPECT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok()) << "twice is once";
  EXPECT_EQ(machine->stats().fetches, 1);
  expect(machine, *block, machine.sim(1), 1);
  EXPECT_EQ(machine->stats().fetches, 1);
  EXPECT_EQ(block->replica(machine.sim(1)).word.state(), ReplicaState::shared);
  machine->destroy(block);
}

TEST_P(TransferTest, WhatArrivesMayBeEvictedAgain) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(0)).ok());
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok());
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.host()});
  EXPECT_EQ(machine->used(machine.sim(0)) + machine->used(machine.sim(1)), Bytes(0));
  expect(machine, *block, machine.sim(1), 1);
  machine->destroy(block);
}

// I1: the source of a copy that has not arrived may leave; then the copy is the block.
TEST_P(TransferTest, TheSourceMayLeaveWhileItsCopyArrives) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok());
  ASSERT_TRUE(machine->set_budget(machine.sim(0), Bytes(64)).ok());
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.sim(1)});
  EXPECT_EQ(machine->check_invariants(), "");
  ASSERT_TRUE(machine->set_budget(machine.sim(0), KiB(64)).ok());
  expect(machine, *block, machine.sim(0), 1);
  machine->destroy(block);
}

TEST_P(TransferTest, WriteBackMakesEvictionFree) {
  Machine machine(options());
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().write_back(*block).ok());
  ASSERT_TRUE(machine->requests().write_back(*block).ok());
  EXPECT_EQ(machine->stats().bytes_written_back, static_cast<int64_t>(kSize));
  expect(machine, *block, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_EQ(machine->stats().bytes_written_back, static_cast<int64_t>(kSize));
  expect(machine, *block, machine.sim(1), 1);
  machine->destroy(block);
}

TEST_P(TransferTest, GoesToDiskAndBack) {
  MachineOptions with = options();
  with.disk_budget = MiB(1);
  Machine machine(with);
  Block* block = make(machine, machine.sim(0), 1);
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.host()});
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.disk()});
  EXPECT_EQ(machine->used(machine.host()), Bytes(0));
  ASSERT_TRUE(machine->requests().evict(*block).ok()) << "there is nothing below";
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.disk()});
  expect(machine, *block, machine.sim(1), 1);
  ASSERT_TRUE(machine.write(*block, machine.sim(1), pattern(kSize, 2)).ok());
  EXPECT_EQ(machine->used(machine.disk()), Bytes(0)) << "what is on disk is stale";
  expect(machine, *block, machine.sim(0), 2);
  machine->destroy(block);
}

TEST(Transfer, I7ACopyToDiskThatFailsLateFreesItsSpace) {
  FaultPlan faults;
  Machine machine({.disk_budget = MiB(1), .faults = &faults});
  Block* block = machine.make(machine.sim(), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  faults.arm(1, static_cast<unsigned>(Fault::late_copy));
  EXPECT_EQ(machine->requests().evict(*block).code(), Code::io_error);
  EXPECT_EQ(faults.hits(), 1);
  EXPECT_EQ(machine->used(machine.disk()), Bytes(0));
  EXPECT_EQ(machine->device(machine.disk()).live(), Bytes(0));
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.host()});
  EXPECT_TRUE(machine.read(*block, machine.sim()).value() == pattern(kSize, 1));
  machine->destroy(block);
}

// I10: during any call of a device the engine answers other threads.
TEST_P(TransferTest, I10NoLockIsHeldAcrossACallToADevice) {
  FaultPlan plan;
  MachineOptions watched = options(2, Bytes(2 * kSize));
  watched.host_budget = Bytes(2 * kSize);
  watched.disk_budget = MiB(1);
  watched.faults = &plan;
  Machine machine(watched);
  int calls = 0;
  plan.set_watcher([&] {
    ++calls;
    std::future<Bytes> other =
        std::async(std::launch::async, [&] { return machine->unpinned_budget(machine.sim(0)); });
    if (other.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      std::fputs("the engine's lock is held across a call to a device\n", stderr);
      std::abort();  // The other thread would never end.
    }
  });
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 8; ++i) blocks.push_back(make(machine, machine.sim(i % 2), i));
  for (uint64_t i = 0; i < 8; ++i) expect(machine, *blocks[i], machine.sim(0), i);
  ASSERT_TRUE(machine.write(*blocks[0], machine.sim(1), pattern(kSize, 9)).ok());
  ASSERT_TRUE(machine->requests().write_back(*blocks[0]).ok());
  ASSERT_TRUE(machine->evictor().evict_all().ok());
  ASSERT_TRUE(machine->requests().prefetch(*blocks[0], machine.sim(0)).ok());
  for (Block* block : blocks) machine->destroy(block);
  EXPECT_GT(calls, 50);
  plan.set_watcher({});
}

INSTANTIATE_TEST_SUITE_P(Visibilities, TransferTest,
                         testing::Values(sim::Visibility::late, sim::Visibility::random,
                                         sim::Visibility::early));

// Where every node is full a reader gets a copy of the bytes from their node, and nothing moves.
TEST_P(TransferTest, BytesAreReadWhereTheyAre) {
  MachineOptions full = options();
  full.host_budget = KiB(8);
  full.disk_budget = MiB(1);
  Machine machine(full);
  const auto read = [&](Block& block) {
    Contents bytes(kSize);
    EXPECT_TRUE(machine->requests().read(block, bytes.data()).ok());
    return bytes;
  };
  Block* block = make(machine, machine.sim(0), 1);
  EXPECT_EQ(read(*block), pattern(kSize, 1)) << "at the GPU, after the kernel that wrote it";
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_EQ(read(*block), pattern(kSize, 1)) << "at the host";
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  ASSERT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.disk()});
  EXPECT_EQ(read(*block), pattern(kSize, 1)) << "on the disk";
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.disk()});
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
  Block* const never_written = machine->create(Bytes(kSize));
  Contents bytes(kSize);
  EXPECT_EQ(machine->requests().read(*never_written, bytes.data()).code(), Code::unavailable);
  machine->destroy(never_written);
}

}  // namespace
}  // namespace innkeeper::test
