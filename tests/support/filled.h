// Blocks of patterns at a node, and the check that they are unchanged.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "support/machine.h"

namespace innkeeper::test {

// Makes `count` blocks; number i has pattern i.
inline std::vector<Block*> fill(Machine& machine, NodeId node, uint64_t count) {
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < count; ++i) {
    Result<Block*> made = machine.make(node, pattern(kSize, i));
    IK_CHECK(made.ok(), made.status().message());
    blocks.push_back(made.value());
  }
  return blocks;
}

// Reads the blocks at `node`, destroys them, and checks that the engine holds no bytes.
inline void check_and_destroy(Machine& machine, const std::vector<Block*>& blocks, NodeId node) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    Result<Contents> seen = machine.read(*blocks[i], node);
    ASSERT_TRUE(seen.ok()) << seen.status().message();
    EXPECT_TRUE(seen.value() == pattern(kSize, i)) << i;
  }
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : blocks) machine->destroy(block);
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->check_invariants(), "");
  for (size_t i = 0; i < machine->node_count(); ++i) {
    EXPECT_EQ(machine->used(NodeId{static_cast<uint8_t>(i)}), Bytes(0));
  }
}

}  // namespace innkeeper::test
