// The engine frees memory that left a replica under a copy soon after the copy, with or without a caller that
// looks.
#include <gtest/gtest.h>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

class ReclaimTest : public testing::TestWithParam<sim::Visibility> {};

// The loop neither reads statistics nor synchronises, both of which free such memory.
TEST_P(ReclaimTest, ABlockThatGoesToAndFroHoldsTheHostMemoryOfAFewCopies) {
  Machine machine({.visibility = GetParam()});
  Block* block = machine.make(machine.sim(), pattern(kSize, 0)).value();
  for (uint64_t round = 1; round <= 800; ++round) {
    ASSERT_TRUE(machine->requests().evict(*block).ok());
    ASSERT_TRUE(machine.write(*block, machine.sim(), pattern(kSize, round)).ok());
  }
  EXPECT_LE(machine->glance(machine.host()).peak, static_cast<int64_t>(8 * kSize));
  EXPECT_TRUE(machine.read(*block, machine.sim()).value() == pattern(kSize, 800));
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

TEST_P(ReclaimTest, ManyBlocksOnTwoGpusHoldWhatIsOutAndALittleMore) {
  constexpr size_t kBlocks = 32;
  Machine machine({.accelerators = 2, .budget = Bytes(4 * kSize), .visibility = GetParam(), .peers = false});
  std::vector<Block*> blocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(machine.make(machine.sim(i % 2), pattern(kSize, i)).value());
  }
  for (uint64_t round = 0; round < 100; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      ASSERT_TRUE(machine.write(*blocks[i], machine.sim((i + round) % 2), pattern(kSize, round + i)).ok());
    }
  }
  EXPECT_LE(machine->glance(machine.host()).peak, static_cast<int64_t>((kBlocks + 8) * kSize));
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : blocks) machine->destroy(block);
}

TEST(Reclaim, ADisksRangesComeBackToo) {
  Machine machine({.accelerators = 0, .host_budget = Bytes(2 * kSize), .disk_budget = MiB(1)});
  Block* block = machine.make(machine.host(), pattern(kSize, 0)).value();
  for (uint64_t round = 1; round <= 100; ++round) {
    ASSERT_TRUE(machine->requests().evict(*block).ok());
    ASSERT_TRUE(machine.write(*block, machine.host(), pattern(kSize, round)).ok());
  }
  EXPECT_LE(machine->glance(machine.disk()).peak, static_cast<int64_t>(8 * kSize));
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

INSTANTIATE_TEST_SUITE_P(Visibilities, ReclaimTest,
                         testing::Values(sim::Visibility::late, sim::Visibility::early,
                                         sim::Visibility::random));

}  // namespace
}  // namespace innkeeper::test
