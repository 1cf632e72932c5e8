// Requests about one block from outside of operators: by the user and by tools.
//
// Thread safety: every function may be called from any thread. Each waits while another thread moves the
// block; prefetch() and write_back() give up after kPatience if other threads hold the memory they need.
#pragma once

#include <vector>

#include "residency/evictor.h"
#include "residency/recomputer.h"

namespace innkeeper {

class Requests {
 public:
  // The arguments must outlive the object.
  Requests(BlockTable& table, LastingPins& pins, Mover& mover, Evictor& evictor, Recomputer& recomputer)
      : table_(table), pins_(pins), mover_(mover), evictor_(evictor), recomputer_(recomputer) {}

  // Brings the block to the node and keeps it there until it is unpinned as often.
  Status pin(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);
  void unpin(Block& block) { pins_.unpin(block); }
  bool is_pinned(const Block& block) const { return pins_.is_pinned(block); }
  // Pins the block at the node for the calling thread, which works on its bytes itself (innkeeper.resident).
  // A request of the same thread that would wait for that pin fails at once.
  Status hold(Block& block, NodeId id, bool write) IK_EXCLUDES(engine_mutex);
  // Starts a move for which no operator waits. Its copies start when the link has time, by way of the host if
  // they must; the first use waits for the rest.
  Status prefetch(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);
  Status write_back(Block& block)
      IK_EXCLUDES(engine_mutex);                         // Copies dirty bytes to the host; the replica stays.
  Status evict(Block& block) IK_EXCLUDES(engine_mutex);  // From accelerators to the host, or from it to disk.
  // Copies the block's bytes, from where they are, to memory that the engine does not know: for a reader
  // where every node is full. Nothing moves. Waits for the copy. Code::unavailable if there are no bytes.
  Status read(Block& block, void* to) IK_EXCLUDES(engine_mutex);
  // Nodes with valid bytes, the owner first, and those where a move has come to its end unseen.
  std::vector<NodeId> where(const Block& block) const IK_EXCLUDES(engine_mutex);

 private:
  BlockTable& table_;
  LastingPins& pins_;
  Mover& mover_;
  Evictor& evictor_;
  Recomputer& recomputer_;
};

}  // namespace innkeeper
