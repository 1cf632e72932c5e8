// A device lost for good takes with it only the blocks that it alone held.
#include <gtest/gtest.h>

#include <string>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

class LostDevice : public testing::Test {
 protected:
  Block* make(NodeId node, uint64_t version) {
    Result<Block*> made = machine_.make(node, pattern(kSize, version));
    IK_CHECK(made.ok(), made.status().message());
    return made.value();
  }
  void lose(NodeId node) { dynamic_cast<FaultyDevice&>(machine_->device(node)).lose(); }
  void expect(Block& block, NodeId node, uint64_t version) {
    Result<Contents> seen = machine_.read(block, node);
    ASSERT_TRUE(seen.ok()) << seen.status().message();
    EXPECT_TRUE(seen.value() == pattern(kSize, version));
  }
  void expect_lost(Block& block, NodeId node) {
    const Result<Contents> seen = machine_.read(block, node);
    ASSERT_FALSE(seen.ok());
    EXPECT_EQ(seen.status().code(), Code::device_lost);
    const std::string name = "block " + std::to_string(static_cast<uint64_t>(block.id()));
    EXPECT_NE(seen.status().message().find(name), std::string::npos) << seen.status().message();
    EXPECT_NE(seen.status().message().find("sim:0"), std::string::npos) << seen.status().message();
  }
  void TearDown() override { EXPECT_EQ(machine_->check_invariants(), ""); }

  FaultPlan plan_;
  Machine machine_{{.accelerators = 2, .budget = KiB(64), .host_computes = true, .faults = &plan_}};
};

TEST_F(LostDevice, TakesWhatItAloneHeldByName) {
  Block* gone = make(machine_.sim(0), 1);
  Block* elsewhere = make(machine_.sim(1), 2);
  lose(machine_.sim(0));
  for (const NodeId node : {machine_.sim(0), machine_.sim(1), machine_.host()}) expect_lost(*gone, node);
  EXPECT_EQ(machine_->requests().prefetch(*gone, machine_.sim(1)).code(), Code::device_lost);
  EXPECT_EQ(machine_->requests().evict(*gone).code(), Code::device_lost);
  expect(*elsewhere, machine_.sim(1), 2);
  expect(*elsewhere, machine_.host(), 2);
  machine_->destroy(gone);
  machine_->destroy(elsewhere);
  EXPECT_EQ(machine_->used(machine_.sim(0)), Bytes(0));
}

TEST_F(LostDevice, WhatTheHostHasAsWellIsReadThere) {
  Block* block = make(machine_.sim(0), 3);
  ASSERT_TRUE(machine_->requests().write_back(*block).ok());
  ASSERT_TRUE(machine_->synchronize().ok());
  lose(machine_.sim(0));
  expect(*block, machine_.host(), 3);
  expect(*block, machine_.sim(1), 3);
  ASSERT_TRUE(machine_.write(*block, machine_.sim(1), pattern(kSize, 4)).ok());
  expect(*block, machine_.host(), 4);
  machine_->destroy(block);
}

TEST_F(LostDevice, RefusesWhatIsSafeWithItsOwnReason) {
  Block* block = make(machine_.sim(1), 5);
  lose(machine_.sim(0));
  const Result<Contents> seen = machine_.read(*block, machine_.sim(0));
  EXPECT_EQ(seen.status().code(), Code::device_lost);
  EXPECT_EQ(seen.status().message(), "sim:0 is lost");
  expect(*block, machine_.sim(1), 5);
  machine_->destroy(block);
}

TEST_F(LostDevice, NothingIsPlacedOnItWhileAnotherWorks) {
  Block* block = make(machine_.sim(0), 6);
  const Access access{.block = block};
  EXPECT_EQ(machine_->place(std::span(&access, 1), machine_.sim(0)), machine_.sim(0));
  lose(machine_.sim(0));
  EXPECT_NE(machine_->place(std::span(&access, 1), machine_.sim(0)), machine_.sim(0));
  EXPECT_NE(machine_->place({}, machine_.sim(0)), machine_.sim(0));
  machine_->destroy(block);
}

TEST_F(LostDevice, OthersStillMakeRoom) {
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 40; ++i) {  // 160 KiB on a node of 64.
    if (i == 10) lose(machine_.sim(0));
    blocks.push_back(make(machine_.sim(1), i));
  }
  for (uint64_t i = 0; i < 40; ++i) {
    Result<Contents> seen = machine_.read(*blocks[i], machine_.sim(1));
    if (seen.ok()) {
      EXPECT_TRUE(seen.value() == pattern(kSize, i));
    } else {
      EXPECT_EQ(seen.status().code(), Code::device_lost);  // The block had moved to the peer before the loss.
    }
    machine_->destroy(blocks[i]);
  }
  EXPECT_GT(machine_->stats().evictions, 0);
}

TEST_F(LostDevice, DoesNotKeepTheOthersFromBeingWaitedFor) {
  Block* block = make(machine_.sim(1), 7);
  lose(machine_.sim(0));
  EXPECT_TRUE(machine_->synchronize().ok());
  machine_->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
