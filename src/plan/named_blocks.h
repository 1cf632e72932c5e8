// The live blocks of a program by their names.
//
// Names rise by one, so the recent ones are found by index in a ring. A block that outlives its place there
// moves to a hash table. O(1) for each call.
//
// Ownership: blocks are the engine's, and never dereferenced here.
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "plan/history.h"

namespace innkeeper {
class Block;
}

namespace innkeeper::plan {

class NamedBlocks {
 public:
  NamedBlocks() : recent_(kRecent) {}

  // Requires: the name is greater than all names that were added before.
  void add(Name name, Block* block);
  // The block dies.
  void remove(Name name);
  // Null if no live block has the name.
  Block* find(Name name) const;

 private:
  struct NamedBlock {
    Name name = 0;
    Block* block = nullptr;
  };
  static constexpr size_t kRecent = size_t{1} << 16;

  std::vector<NamedBlock> recent_;               // By name modulo kRecent; the newest replaces the oldest.
  std::unordered_map<Name, Block*> long_lived_;  // Blocks that have outlived their place in recent_.
};

}  // namespace innkeeper::plan
