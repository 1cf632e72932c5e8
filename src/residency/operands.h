// Operands and results of operators: pins, exclusive writes (I2), births and ends of blocks.
//
// acquire() pins each resident operand by one compare-and-swap, without the lock. The slow path fetches.
//
// Thread safety: every function may be called from any thread. The program orders two threads that use one
// block where one of them writes it, as PyTorch requires (I8).
#pragma once

#include <chrono>
#include <span>

#include "policy/placement.h"
#include "residency/books/ledger.h"
#include "residency/movement/mover.h"

namespace innkeeper {

// How long a request is repeated while other threads hold the memory or the blocks that it needs.
inline constexpr std::chrono::seconds kPatience{60};

class Operands {
 public:
  // The arguments must outlive the object.
  Operands(BlockTable& table, Ledger& ledger, LastingPins& pins, Mover& mover)
      : table_(table), ledger_(ledger), pins_(pins), mover_(mover) {}

  // Pins every block at the node, fetching the bytes that are missing; written blocks become owned there. All
  // or nothing. Code::discarded where blocks must be recomputed first (Recomputer::gather).
  Status acquire(NodeId id, std::span<Access> accesses) IK_EXCLUDES(engine_mutex);
  // Releases the pins that are still marked in `accesses`. The operator's kernels are on the compute queue.
  void release_pins(NodeId id, std::span<Access> accesses) IK_EXCLUDES(engine_mutex);
  // Where an operator with these operands runs. Replicated operands count only if there are no others. Blocks
  // that are written and pinned at the host are written there, although the host may compute nothing else.
  NodeId place(std::span<const Access> accesses, NodeId preferred) const;

  // A kernel's fresh result: `memory` becomes the block's only replica, pinned until the caller releases an
  // access that is marked as pinned and born. Requires: the block has no replica.
  void adopt(Block& block, NodeId id, Memory memory);
  // The kernel resized the storage of a block that the caller acquired for writing, or that had no bytes.
  void replace(Block& block, NodeId id, Memory memory, Bytes size) IK_EXCLUDES(engine_mutex);
  Status resize_unwritten(Block& block, Bytes size) IK_EXCLUDES(engine_mutex);
  // The block ends while its real memory on the node is held outside: hands the memory over.
  Memory detach(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);
  // Requires: no thread uses the block any more. Never fails; waits only for a move that is under way.
  Block::Space destroy(Block* block) IK_EXCLUDES(engine_mutex);

 private:
  Status pin_slow(const Access& access, NodeId id) IK_EXCLUDES(engine_mutex);
  bool pin_closed(Replica& replica, const Access& access) IK_REQUIRES(engine_mutex);
  Status make_exclusive(Block& block, NodeId id) IK_REQUIRES(engine_mutex);
  bool retire(Block& block) IK_EXCLUDES(engine_mutex);
  void release_all(Block& block) IK_EXCLUDES(engine_mutex);

  BlockTable& table_;
  Ledger& ledger_;
  LastingPins& pins_;
  Mover& mover_;
};

}  // namespace innkeeper
