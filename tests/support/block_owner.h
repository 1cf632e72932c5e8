// A thread's blocks on a machine that threads share, for tests with random actions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "support/machine.h"

namespace innkeeper::test {

// The blocks that one thread has made, each with its expected contents. Used by that thread alone.
class BlockOwner {
 public:
  BlockOwner(Machine& machine, uint64_t seed) : machine_(machine), random_(seed) {}

 protected:
  struct Owned {
    Block* block;
    Contents contents;
  };

  // A number below `limit`.
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }
  NodeId any_node() { return machine_->computing_nodes()[below(machine_->computing_nodes().size())]; }
  Owned& any() { return blocks_[below(blocks_.size())]; }

  // Reads a block at any node. Fails the test if its contents are wrong.
  void check(const Owned& owned) {
    Result<Contents> seen = machine_.read(*owned.block, any_node());
    ASSERT_TRUE(seen.ok()) << seen.status().message();
    EXPECT_TRUE(seen.value() == owned.contents);
  }

  Machine& machine_;
  std::mt19937_64 random_;
  std::vector<Owned> blocks_;
};

}  // namespace innkeeper::test
