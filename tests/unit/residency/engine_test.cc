// Blocks, operators, pins, escapes: the engine's promises to the layer above it.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

Block* must_make(Machine& machine, NodeId node, const Contents& contents) {
  Result<Block*> made = machine.make(node, contents);
  IK_CHECK(made.ok(), made.status().message());
  return made.value();
}

void expect_contents(Machine& machine, Block& block, NodeId node, const Contents& wanted) {
  Result<Contents> seen = machine.read(block, node);
  ASSERT_TRUE(seen.ok()) << seen.status().message();
  EXPECT_TRUE(seen.value() == wanted) << "at " << machine->device(node).name();
}

ReplicaState state(const Block& block, NodeId node) { return block.replica(node).word.state(); }

TEST(Engine, I1ABlockNeverWrittenCostsNothing) {
  Machine machine;
  Block* block = machine->create(GiB(100));
  EXPECT_TRUE(machine->requests().where(*block).empty());
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0));
  EXPECT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_TRUE(machine->requests().write_back(*block).ok());
  EXPECT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok()) << "there is nothing to fetch";
  EXPECT_TRUE(machine->resize_unwritten(*block, Bytes(10)).ok());
  EXPECT_EQ(block->size(), Bytes(10));
  EXPECT_EQ(machine->table().block_count(), 1u);
  machine->destroy(block);
  EXPECT_EQ(machine->table().block_count(), 0u);
  EXPECT_EQ(machine->check_invariants(), "");
}

TEST(Engine, ABlockWithoutBytesMovesLikeAnyOther) {
  Machine machine({.accelerators = 2, .disk_budget = MiB(1)});
  Block* block = machine->create(Bytes(0));
  for (NodeId node : {machine.sim(0), machine.sim(1), machine.host(), machine.sim(0)}) {
    EXPECT_TRUE(machine.write(*block, node, {}).ok());
    EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{node});
    EXPECT_EQ(machine->check_invariants(), "");
  }
  EXPECT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_TRUE(machine->requests().evict(*block).ok());
  expect_contents(machine, *block, machine.sim(1), {});
  machine->destroy(block);
}

TEST(Engine, I2WritingOwnsAndReadingShares) {
  Machine machine({.accelerators = 2});
  Block* block = must_make(machine, machine.sim(0), pattern(kSize, 1));
  EXPECT_EQ(state(*block, machine.sim(0)), ReplicaState::owned);
  expect_contents(machine, *block, machine.sim(1), pattern(kSize, 1));
  EXPECT_EQ(state(*block, machine.sim(0)), ReplicaState::shared);
  EXPECT_EQ(state(*block, machine.sim(1)), ReplicaState::shared);
  EXPECT_EQ(machine->used(machine.sim(0)), Bytes(kSize));
  ASSERT_TRUE(machine.write(*block, machine.sim(1), pattern(kSize, 2)).ok());
  EXPECT_EQ(state(*block, machine.sim(0)), ReplicaState::absent);
  EXPECT_EQ(state(*block, machine.sim(1)), ReplicaState::owned);
  EXPECT_EQ(machine->used(machine.sim(0)), Bytes(0)) << "the other replica is dropped";
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.sim(1)});
  expect_contents(machine, *block, machine.sim(0), pattern(kSize, 2));
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

TEST(Engine, AcquiresAllOperandsOrNone) {
  Machine machine({.budget = Bytes(3 * kSize)});
  std::vector<Access> accesses;
  for (uint64_t i = 0; i < 4; ++i) {
    accesses.push_back({.block = must_make(machine, machine.sim(), pattern(kSize, i))});
  }
  const NodeAdmission scope = machine.engine().admit(machine.sim(), Bytes(0));
  EXPECT_EQ(machine->acquire(machine.sim(), std::span(accesses)).code(), Code::out_of_memory);
  for (const Access& access : accesses) {
    EXPECT_FALSE(access.pinned);
    EXPECT_EQ(access.block->replica(machine.sim()).word.pins(), 0u);
  }
  EXPECT_EQ(machine->check_invariants(), "");
  ASSERT_TRUE(machine->acquire(machine.sim(), std::span(accesses).first(3)).ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(accesses[i].pinned);
  machine->release(machine.sim(), std::span(accesses));
  for (const Access& access : accesses) machine->destroy(access.block);
}

TEST(Engine, OneBlockMayBeSeveralOperands) {
  Machine machine({.accelerators = 2});
  Block* block = must_make(machine, machine.sim(1), pattern(kSize, 1));
  ASSERT_TRUE(machine
                  .run(machine.sim(0), {{.block = block}, {.block = block, .write = true}, {.block = block}},
                       [](auto operands) {
                         EXPECT_EQ(operands[0].data(), operands[1].data());
                         operands[1][0] = 77;
                       })
                  .ok());
  EXPECT_EQ(block->replica(machine.sim(0)).word.pins(), 0u);
  EXPECT_EQ(state(*block, machine.sim(0)), ReplicaState::owned);
  Contents wanted = pattern(kSize, 1);
  wanted[0] = 77;
  expect_contents(machine, *block, machine.sim(1), wanted);
  machine->destroy(block);
}

TEST(Engine, I3APinnedReplicaStaysWhereItIs) {
  Machine machine({.accelerators = 2, .budget = Bytes(3 * kSize)});
  Block* pinned = must_make(machine, machine.sim(0), pattern(kSize, 1));
  ASSERT_TRUE(machine->requests().pin(*pinned, machine.sim(0)).ok());
  ASSERT_TRUE(machine->requests().pin(*pinned, machine.sim(0)).ok());
  EXPECT_TRUE(machine->requests().is_pinned(*pinned));
  const void* data = pinned->data(machine.sim(0));
  std::vector<Block*> others;
  for (uint64_t i = 0; i < 6; ++i) {
    others.push_back(must_make(machine, machine.sim(0), pattern(kSize, 10 + i)));
    EXPECT_EQ(pinned->data(machine.sim(0)), data);
  }
  EXPECT_EQ(machine->requests().evict(*pinned).code(), Code::invalid_argument);
  EXPECT_TRUE(machine->evictor().evict_all().ok());
  EXPECT_EQ(pinned->data(machine.sim(0)), data);
  const Status elsewhere = machine.write(*pinned, machine.sim(1), pattern(kSize, 2));
  EXPECT_EQ(elsewhere.code(), Code::invalid_argument);
  EXPECT_EQ(elsewhere.message(),
            "the block is pinned at sim:0 and cannot be written at sim:1; unpin it first");
  expect_contents(machine, *pinned, machine.sim(1), pattern(kSize, 1));
  ASSERT_TRUE(machine.write(*pinned, machine.sim(0), pattern(kSize, 3)).ok()) << "here it may be written";
  EXPECT_EQ(pinned->data(machine.sim(0)), data);
  machine->requests().unpin(*pinned);
  EXPECT_EQ(machine->requests().evict(*pinned).code(), Code::invalid_argument) << "it was pinned twice";
  machine->requests().unpin(*pinned);
  machine->requests().unpin(*pinned);
  EXPECT_FALSE(machine->requests().is_pinned(*pinned));
  EXPECT_TRUE(machine->requests().evict(*pinned).ok());
  expect_contents(machine, *pinned, machine.sim(0), pattern(kSize, 3));
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : others) machine->destroy(block);
  machine->destroy(pinned);
}

TEST(Engine, I3AnOperandInUseIsNeitherEvictedNorWrittenElsewhere) {
  Machine machine({.accelerators = 2, .budget = Bytes(2 * kSize)});
  Block* block = must_make(machine, machine.sim(0), pattern(kSize, 1));
  Access access{.block = block};
  ASSERT_TRUE(machine->acquire(machine.sim(0), std::span(&access, 1)).ok());
  const void* data = block->data(machine.sim(0));
  EXPECT_EQ(machine->requests().evict(*block).code(), Code::busy);
  EXPECT_TRUE(machine->evictor().evict_all().ok());
  Result<Memory> one = machine->device(machine.sim(0)).allocate(Bytes(kSize));
  ASSERT_TRUE(one.ok());
  EXPECT_FALSE(machine->device(machine.sim(0)).allocate(Bytes(64)).ok());
  EXPECT_EQ(block->data(machine.sim(0)), data);
  EXPECT_TRUE(machine->table().has_replica(*block, machine.sim(0)));
  machine->release(machine.sim(0), std::span(&access, 1));
  EXPECT_TRUE(machine->device(machine.sim(0)).allocate(Bytes(64)).ok());
  EXPECT_FALSE(machine->table().has_replica(*block, machine.sim(0)));
  machine->destroy(block);
}

TEST(Engine, I4OutOfMemorySaysAllTheNumbers) {
  Machine machine({.budget = KiB(64)});
  const NodeId node = machine.sim();
  Block* pinned = must_make(machine, node, pattern(16 << 10, 1));
  ASSERT_TRUE(machine->requests().pin(*pinned, node).ok());
  Block* operand = must_make(machine, node, pattern(12 << 10, 2));
  Access access{.block = operand};
  ASSERT_TRUE(machine->acquire(node, std::span(&access, 1)).ok());
  Result<Memory> kernel = machine->device(node).allocate(KiB(20));
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ(machine->unpinned_budget(node), KiB(48));
  const Status status = machine->device(node).allocate(KiB(18)).status();
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_EQ(
      status.message(),
      "sim:0 is out of memory. 18.0 KiB asked, 48.0 KiB of its budget of 64.0 KiB in use (28.0 KiB by "
      "operands and pins, of which 16.0 KiB pinned by the user or escaped; 0 B by other tensors; 20.0 KiB by "
      "kernels themselves); a larger budget for sim:0 in INNKEEPER_NODES or configure() would help, and "
      "unpinning");
  const Status huge = machine->device(node).allocate(MiB(2)).status();
  EXPECT_EQ(huge.code(), Code::out_of_memory);
  EXPECT_NE(huge.message().find("2.0 MiB asked"), std::string::npos) << huge.message();
  EXPECT_EQ(machine->check_invariants(), "");
  machine->release(node, std::span(&access, 1));
  machine->requests().unpin(*pinned);
  machine->destroy(operand);
  machine->destroy(pinned);
}

TEST(Engine, ReplacesTheMemoryOfAnOperandThatAKernelResized) {
  Machine machine;
  Block* block = must_make(machine, machine.sim(), pattern(kSize, 1));
  ASSERT_TRUE(machine->requests().write_back(*block).ok());
  EXPECT_EQ(machine->resize_unwritten(*block, Bytes(1)).code(), Code::invalid_argument);
  Access access{.block = block, .write = true};
  ASSERT_TRUE(machine->acquire(machine.sim(), std::span(&access, 1)).ok());
  Result<Memory> memory = machine->device(machine.sim()).allocate(Bytes(2 * kSize));
  ASSERT_TRUE(memory.ok());
  machine->replace(*block, machine.sim(), std::move(memory).value(), Bytes(2 * kSize));
  machine.launch(machine.sim(), std::span(&access, 1), [](auto operands) {
    ASSERT_EQ(operands[0].size(), 2 * kSize);
    std::memset(operands[0].data(), 5, 2 * kSize);
  });
  machine->release(machine.sim(), std::span(&access, 1));
  EXPECT_EQ(machine->used(machine.sim()), Bytes(2 * kSize));
  ASSERT_TRUE(machine->synchronize().ok());  // The copy to the host ends, and the host frees its memory.
  EXPECT_EQ(machine->used(machine.host()), Bytes(0));
  EXPECT_EQ(machine->check_invariants(), "");
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  expect_contents(machine, *block, machine.sim(), Contents(2 * kSize, 5));
  machine->destroy(block);
}

// No operator acquires a block without bytes: a kernel may give it some at a node where it is absent.
TEST(Engine, I2ABlockWithoutBytesGetsThemOnOneNode) {
  for (int way = 0; way < 2; ++way) {
    SCOPED_TRACE(way);
    Machine machine({.accelerators = 2});
    Block* block = must_make(machine, machine.sim(0), pattern(kSize, 1));
    Access access{.block = block, .write = true};
    ASSERT_TRUE(machine->acquire(machine.sim(0), std::span(&access, 1)).ok());
    machine->replace(*block, machine.sim(0), Memory(), Bytes(0));
    machine->release(machine.sim(0), std::span(&access, 1));
    if (way == 1) {
      ASSERT_TRUE(machine->requests().write_back(*block).ok());  // The host gets an empty spare.
    }
    const NodeId node = way == 0 ? machine.sim(1) : machine.sim(0);
    Result<Memory> memory = machine->device(node).allocate(Bytes(kSize));
    ASSERT_TRUE(memory.ok());
    machine->replace(*block, node, std::move(memory).value(), Bytes(kSize));
    EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{node});
    EXPECT_EQ(machine->check_invariants(), "");
    machine->destroy(block);
    EXPECT_EQ(machine->check_invariants(), "");
  }
}

TEST(Engine, DestroysABlockInEveryState) {
  for (int way = 0; way < 7; ++way) {
    SCOPED_TRACE(way);
    Machine machine({.accelerators = 2, .disk_budget = MiB(1)});
    Block* block = must_make(machine, machine.sim(0), pattern(kSize, 1));
    switch (way) {
      case 0: break;  // Owned; its kernel is still hidden.
      case 1: ASSERT_TRUE(machine->requests().write_back(*block).ok()); break;
      case 2: ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok()); break;  // arriving
      case 3: ASSERT_TRUE(machine->requests().evict(*block).ok()); break;
      case 4:
        ASSERT_TRUE(machine->requests().evict(*block).ok());
        ASSERT_TRUE(machine->requests().evict(*block).ok());  // The second call moves the block to the disk.
        EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.disk()});
        ASSERT_TRUE(machine->requests().prefetch(*block, machine.host()).ok());
        break;
      case 5: ASSERT_TRUE(machine->requests().pin(*block, machine.sim(1)).ok()); break;
      case 6:
        ASSERT_TRUE(machine->requests().evict(*block).ok());
        ASSERT_TRUE(machine->requests()
                        .prefetch(*block, machine.sim(1))
                        .ok());  // A copy still reads the host's memory.
        break;
    }
    machine->destroy(block);
    EXPECT_EQ(machine->table().block_count(), 0u);
    ASSERT_TRUE(machine->synchronize().ok());
    EXPECT_EQ(machine->check_invariants(), "");
    for (size_t node = 0; node < machine->node_count(); ++node) {
      EXPECT_EQ(machine->used(NodeId{static_cast<uint8_t>(node)}), Bytes(0)) << node;
    }
  }
}

TEST(Engine, ObserversLearnOfMemoryBeforeItIsUsedAndBeforeItGoes) {
  Machine machine({.accelerators = 2});
  std::set<std::pair<uint64_t, NodeId>> known;
  machine->set_observers({.memory = [&](Block& block, NodeId node, void* data) {
    const std::pair key(static_cast<uint64_t>(block.id()), node);
    EXPECT_EQ(block.replica(node).word.pins(), 0u);
    if (data != nullptr) {
      EXPECT_EQ(block.data(node), data);
      EXPECT_TRUE(known.insert(key).second);
    } else {
      EXPECT_EQ(known.erase(key), 1u);
    }
  }});
  Block* block = machine->create(Bytes(kSize));
  const auto id = static_cast<uint64_t>(block->id());
  ASSERT_TRUE(machine.write(*block, machine.sim(0), pattern(kSize, 1)).ok());
  EXPECT_TRUE(known.contains({id, machine.sim(0)}));
  ASSERT_TRUE(machine.read(*block, machine.sim(1)).ok());
  EXPECT_TRUE(known.contains({id, machine.sim(1)}));
  ASSERT_TRUE(machine.write(*block, machine.sim(1), pattern(kSize, 2)).ok());
  EXPECT_EQ(known.size(), 1u);
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  EXPECT_TRUE(known.contains({id, machine.host()}));
  EXPECT_EQ(known.size(), 1u);
  machine->destroy(block);
  EXPECT_TRUE(known.empty());
}

TEST(Engine, I12AnEscapedReplicaStaysUntilTheProbeReleasesIt) {
  Machine machine({.accelerators = 2, .budget = Bytes(2 * kSize)});
  bool held = true;
  machine->set_observers({.escapes = [&](Block&, NodeId) { return held; }});
  Block* block = must_make(machine, machine.sim(0), pattern(kSize, 1));
  for (int i = 0; i < 2; ++i) {  // A second escape changes nothing.
    Access access{.block = block};
    ASSERT_TRUE(machine->acquire(machine.sim(0), std::span(&access, 1)).ok());
    machine->keep_escaped(machine.sim(0), access);
    EXPECT_FALSE(access.pinned);
    machine->release(machine.sim(0), std::span(&access, 1));
  }
  EXPECT_EQ(machine->stats().escaped, 1);
  EXPECT_EQ(machine->stats().nodes.at("sim:0").pinned, static_cast<int64_t>(kSize));
  EXPECT_EQ(machine->unpinned_budget(machine.sim(0)), Bytes(kSize));
  EXPECT_EQ(machine->requests().evict(*block).code(), Code::invalid_argument);
  EXPECT_FALSE(machine->device(machine.sim(0)).allocate(Bytes(2 * kSize)).ok());
  const Access operand{.block = block};
  EXPECT_EQ(machine->place(std::span(&operand, 1), machine.sim(1)), machine.sim(0));
  EXPECT_EQ(machine->check_invariants(), "");
  held = false;
  ASSERT_TRUE(machine.write(*block, machine.sim(1), pattern(kSize, 2)).ok())
      << "asks the probe before it gives up";
  EXPECT_EQ(machine->stats().escaped, 0);
  expect_contents(machine, *block, machine.sim(0), pattern(kSize, 2));
  machine->destroy(block);
}

TEST(Engine, I12DetachedMemoryOutlivesItsBlock) {
  Machine machine;
  const NodeId node = machine.sim();
  machine->set_observers({.escapes = [](Block&, NodeId) { return true; }});
  Block* block = must_make(machine, node, pattern(kSize, 1));
  Access access{.block = block};
  ASSERT_TRUE(machine->acquire(node, std::span(&access, 1)).ok());
  machine->keep_escaped(node, access);
  ASSERT_TRUE(machine->requests()
                  .write_back(*block)
                  .ok());  // A copy still reads the memory when its holder frees it.
  Memory memory = machine->detach(*block, node);
  ASSERT_TRUE(memory);
  EXPECT_FALSE(machine->detach(*block, node));
  EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.host()});
  EXPECT_EQ(machine->used(node), Bytes(kSize)) << "its holder is charged for it";
  memory.reset();
  EXPECT_EQ(machine->used(node), Bytes(0));
  expect_contents(machine, *block, machine.host(), pattern(kSize, 1));
  machine->destroy(block);
  EXPECT_EQ(machine->stats().escaped, 0);
  EXPECT_EQ(machine->check_invariants(), "");
}

TEST(Engine, WhatIsPinnedToTheHostIsWrittenThere) {
  for (const size_t accelerators : {1, 2}) {
    Machine machine({.accelerators = accelerators});
    Block* pinned = must_make(machine, machine.sim(0), pattern(kSize, 1));
    Block* other = must_make(machine, machine.sim(0), pattern(kSize, 2));
    ASSERT_TRUE(machine->requests().pin(*pinned, machine.host()).ok());
    const Access written[] = {{.block = other}, {.block = pinned, .write = true}};
    const Access read[] = {{.block = other, .write = true}, {.block = pinned}};
    EXPECT_EQ(machine->place(written, machine.sim(0)), machine.host());
    EXPECT_EQ(machine->place(read, machine.sim(0)), machine.sim(0));
    machine->requests().unpin(*pinned);
    EXPECT_EQ(machine->place(written, machine.sim(0)), machine.sim(0));
    machine->destroy(pinned);
    machine->destroy(other);
  }
}

TEST(Engine, RunsOperatorsWhereTheirOperandsAre) {
  Machine machine({.accelerators = 3});
  Block* large = must_make(machine, machine.sim(1), pattern(3 * kSize, 1));
  Block* small = must_make(machine, machine.sim(0), pattern(kSize, 2));
  const Access accesses[] = {{.block = large}, {.block = small}};
  EXPECT_EQ(machine->place(accesses, machine.sim(2)), machine.sim(1));
  EXPECT_EQ(machine->place({}, machine.sim(2)), machine.sim(2));
  large->replicated = true;
  EXPECT_EQ(machine->place(accesses, machine.sim(2)), machine.sim(0));
  EXPECT_EQ(machine->place(std::span(accesses, 1), machine.sim(2)), machine.sim(1)) << "there is no other";
  large->replicated = false;
  ASSERT_TRUE(machine->requests().prefetch(*small, machine.sim(2)).ok());
  EXPECT_EQ(machine->place(std::span(accesses + 1, 1), machine.sim(2)), machine.sim(2)) << "on its way there";
  ASSERT_TRUE(machine->requests().pin(*small, machine.sim(2)).ok());
  EXPECT_EQ(machine->place(accesses, machine.sim(0)), machine.sim(2));
  machine->requests().unpin(*small);
  machine->destroy(large);
  machine->destroy(small);
}

TEST(Engine, FindsNodesByName) {
  Machine machine({.accelerators = 2, .disk_budget = MiB(1)});
  EXPECT_EQ(machine->table().find_node("sim:1"), machine.sim(1));
  EXPECT_EQ(machine->table().find_node("host"), machine.host());
  EXPECT_EQ(machine->table().find_node("disk"), machine.disk());
  EXPECT_EQ(machine->table().find_node("cuda:0"), kNoNode);
  EXPECT_EQ(machine->computing_nodes(), (std::vector<NodeId>{machine.sim(0), machine.sim(1)}));
}

}  // namespace
}  // namespace innkeeper::test
