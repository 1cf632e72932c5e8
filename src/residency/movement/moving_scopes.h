// Scopes of moves: a node's count of moves, a block's mark, a move's flag. Each is undone when the scope
// ends, also after a failure.
#pragma once

#include <optional>

#include "residency/block/block_table.h"

namespace innkeeper {

// Counts a move at a node for a scope: memory is charged there that is not listed yet, or that is about to be
// freed. Other threads that need memory wait for it instead of giving up. While its own thread waits for
// memory at the node the move does not count (Ledger::wait_for_memory), so that two threads never wait for
// each other.
class NodeMovingScope {
 public:
  NodeMovingScope(BlockTable& table, Node& node) : table_(table), node_(node) { add(1); }
  ~NodeMovingScope() { add(-1); }
  NodeMovingScope(const NodeMovingScope&) = delete;
  NodeMovingScope& operator=(const NodeMovingScope&) = delete;

 private:
  void add(int change) {
    TableLock lock(table_);
    node_.moving += change;
    thread_state().moving[index_of(node_.id)] += change;
  }

  BlockTable& table_;
  Node& node_;
};

// Marks a block as moved by this thread and releases the lock for a scope; retakes the lock and removes the
// mark when the scope ends. Requires: the lock is held, and no thread moves the block.
class IK_SCOPED_CAPABILITY BlockMovingScope {
 public:
  BlockMovingScope(BlockTable& table, Block& block) IK_RELEASE(engine_mutex) IK_NO_THREAD_SAFETY_ANALYSIS
      : table_(table),
        block_(block) {
    table_.begin_move(block_);
    unlocked_.emplace(table);
  }
  ~BlockMovingScope() IK_RELEASE() IK_NO_THREAD_SAFETY_ANALYSIS {
    unlocked_.reset();
    table_.end_move(block_);
  }
  BlockMovingScope(const BlockMovingScope&) = delete;
  BlockMovingScope& operator=(const BlockMovingScope&) = delete;

 private:
  BlockTable& table_;
  Block& block_;
  std::optional<Unlocked> unlocked_;
};

// Marks a move as landing for a scope that begins and ends with the lock held.
class Landing {
 public:
  explicit Landing(Move& move) : move_(move) { move_.landing = true; }
  ~Landing() { move_.landing = false; }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

 private:
  Move& move_;
};

}  // namespace innkeeper
