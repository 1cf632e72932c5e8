// Blocks of one size and the nodes that hold them: for tests of moves.
#pragma once

#include <algorithm>
#include <vector>

#include "support/machine.h"

namespace innkeeper::test {

// Blocks at the host that are absent from all accelerators.
inline std::vector<Block*> at_host(Machine& machine, size_t count, size_t size = kSize) {
  std::vector<Block*> blocks;
  for (size_t i = 0; i < count; ++i) {
    blocks.push_back(machine.make(machine.sim(), pattern(size, i)).value());
    IK_CHECK(machine->requests().evict(*blocks.back()).ok());
  }
  IK_CHECK(machine->synchronize().ok());
  return blocks;
}

inline void destroy(Machine& machine, const std::vector<Block*>& blocks) {
  for (Block* block : blocks) machine->destroy(block);
}

inline bool is_at(Machine& machine, const Block& block, NodeId node) {
  const std::vector<NodeId> where = machine->requests().where(block);
  return std::find(where.begin(), where.end(), node) != where.end();
}

}  // namespace innkeeper::test
