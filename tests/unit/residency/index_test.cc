// The index of victims: it keeps the order of use across all events.
#include "residency/block/victim_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/machine.h"

namespace innkeeper {
namespace {

using test::Machine;
using test::pattern;

// Compares with a list that is sorted again for each victim.
TEST(VictimIndex, GivesWhatWasUsedLeastRecently) {
  Machine machine({.accelerators = 2});
  // A node at which the engine has neither replicas of these blocks nor an index of its own.
  const NodeId node = machine.sim(1);
  const auto policy = make_lru_policy();
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 300; ++i) blocks.push_back(machine.make(machine.sim(0), pattern(64, i)).value());
  std::atomic<Stamp> clock{1000};
  VictimIndex index(node, *policy, clock);
  std::mt19937_64 random(7);
  std::vector<Block*> in;
  for (int step = 0; step < 20000; ++step) {
    Block* const block = blocks[random() % blocks.size()];
    switch (random() % 4) {
      case 0:
        if (!index.contains(*block)) {
          index.add(*block);
          in.push_back(block);
        }
        break;
      case 1:  // the index is not told
        block->replica(node).last_use.store(++clock);
        break;
      case 2:
        if (random() % 4 == 0) {
          index.remove(*block);
          std::erase(in, block);
        }
        break;
      default: {
        Block* const popped = index.pop(Bytes(0));
        ASSERT_EQ(popped == nullptr, in.empty());
        if (popped == nullptr) break;
        ASSERT_FALSE(index.contains(*popped));
        const auto oldest = std::min_element(in.begin(), in.end(), [&](Block* a, Block* b) {
          return a->replica(node).last_use < b->replica(node).last_use;
        });
        ASSERT_EQ(popped->replica(node).last_use, (*oldest)->replica(node).last_use);
        std::erase(in, popped);
      }
    }
    ASSERT_EQ(index.size(), in.size());
  }
  while (Block* const block = index.pop(Bytes(0))) std::erase(in, block);
  EXPECT_TRUE(in.empty());
  for (Block* block : blocks) machine->destroy(block);
}

// The eviction of a small block costs a copy's latency and frees next to no space.
TEST(VictimIndex, FewSmallOnesStay) {
  Machine machine({.accelerators = 1, .budget = MiB(2)});
  const NodeId node = machine.sim();
  Block* small = machine.make(node, pattern(64, 1)).value();
  Block* large = machine.make(node, pattern(128 << 10, 2)).value();
  ASSERT_TRUE(machine->evictor().relieve(node, Bytes(1)).ok());
  EXPECT_EQ(machine->requests().where(*small), std::vector<NodeId>{node});
  EXPECT_EQ(machine->requests().where(*large), std::vector<NodeId>{machine.host()});
  ASSERT_TRUE(machine->evictor().relieve(node, Bytes(1)).ok());
  EXPECT_EQ(machine->requests().where(*small), std::vector<NodeId>{machine.host()})
      << "there is nothing else";
  for (Block* block : {small, large}) machine->destroy(block);
}

TEST(VictimIndex, ManySmallBlocksAreEvictedInOrder) {
  Machine machine({.accelerators = 1, .budget = MiB(1)});
  const NodeId node = machine.sim();
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 20; ++i) blocks.push_back(machine.make(node, pattern(4096, i)).value());  // 80 KiB
  blocks.push_back(machine.make(node, pattern(128 << 10, 99)).value());
  ASSERT_TRUE(machine->evictor().relieve(node, Bytes(1)).ok());
  EXPECT_EQ(machine->requests().where(*blocks.front()), std::vector<NodeId>{machine.host()});
  EXPECT_EQ(machine->requests().where(*blocks.back()), std::vector<NodeId>{node});
  for (Block* block : blocks) machine->destroy(block);
}

// Reads equal blocks in a fixed order; all but one fit. Returns the fetches of the last passes, per pass.
double fetches_of_a_circle(std::unique_ptr<EvictionPolicy> (*policy)(), bool writes) {
  constexpr size_t kBlocks = 10, kBytes = 128 << 10;
  Machine machine({.budget = Bytes(9 * kBytes), .policy = policy});
  machine->plans().set_planning(false);
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < kBlocks; ++i)
    blocks.push_back(machine.make(machine.sim(), pattern(kBytes, i)).value());
  constexpr int kPasses = 30, kLast = 10;
  for (int pass = 0; pass < kPasses; ++pass) {
    if (pass == kPasses - kLast) machine->reset_stats();
    for (Block* block : blocks) {
      EXPECT_TRUE(machine.run(machine.sim(), {{.block = block, .write = writes}}, [](auto) {}).ok());
    }
  }
  const double fetches = static_cast<double>(machine->stats().fetches) / kLast;
  for (Block* block : blocks) machine->destroy(block);
  return fetches;
}

TEST(VictimIndex, InACircleMostStays) {
  EXPECT_EQ(fetches_of_a_circle(make_lru_policy, false), 10);
  EXPECT_LE(fetches_of_a_circle(make_reuse_distance_policy, false), 1.3)
      << "10 in 9 passes is the best that can be";
}

TEST(VictimIndex, WhatIsUsedTwiceAPeriodIsNotKnownInBetween) {
  Machine machine({.budget = MiB(1)});
  Block* block = machine.make(machine.sim(), pattern(4096, 1)).value();
  Block* other = machine.make(machine.sim(), pattern(4096, 2)).value();
  const auto use = [&](Block* which, int times) {
    for (int i = 0; i < times; ++i) ASSERT_TRUE(machine.read(*which, machine.sim()).ok());
  };
  const auto known = [&] {
    const Replica& replica = block->replica(machine.sim());
    return replica.reuse_history.next_use(replica.last_use) != 0;
  };
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(machine->requests().evict(*block).ok());
    use(other, 100);
    use(block, 1);
    EXPECT_FALSE(known()) << "round " << round;
    use(other, 20);
    use(block, 1);
    EXPECT_EQ(known(), round >= 1) << "round " << round;
  }
  for (Block* each : {block, other}) machine->destroy(each);
}

// The copy of a dirty block would have to wait for its last user, and the next kernel for the copy.
TEST(VictimIndex, DirtyBlocksAreEvictedInOrder) {
  EXPECT_EQ(fetches_of_a_circle(make_reuse_distance_policy, true), 10);
}

// Blocks that a user pinned stay older than all others: the search for a victim must not visit them each
// time.
TEST(VictimIndex, WhatIsPinnedIsPassedOverOnce) {
  Machine machine({.accelerators = 1, .budget = MiB(1)});
  const NodeId node = machine.sim();
  Block* pinned = machine.make(node, pattern(64, 1)).value();
  ASSERT_TRUE(machine->requests().pin(*pinned, node).ok());
  Block* first = machine.make(node, pattern(64, 2)).value();
  Block* second = machine.make(node, pattern(64, 3)).value();
  ASSERT_TRUE(machine->evictor().relieve(node, Bytes(1)).ok());
  EXPECT_EQ(machine->requests().where(*first), std::vector<NodeId>{machine.host()});
  machine->requests().unpin(*pinned);
  ASSERT_TRUE(machine->evictor().relieve(node, Bytes(1)).ok());
  EXPECT_EQ(machine->requests().where(*pinned), std::vector<NodeId>{machine.host()})
      << "it is the older again";
  EXPECT_EQ(machine->requests().where(*second), std::vector<NodeId>{node});
  for (Block* block : {pinned, first, second}) machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper
