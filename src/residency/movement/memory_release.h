// The end of a replica: its memory goes back once no copy touches it (I5, I6).
//
// A release has two halves. begin() makes the replica absent under the lock; finish() frees the memory
// without the lock. In between the memory is still charged, and threads that need free memory wait for it
// (Node::moving). Host memory that a copy still reads is parked in Node::parked until the copy is done.
//
// Thread safety: as annotated.
#pragma once

#include <vector>

#include "residency/block/block_table.h"

namespace innkeeper {

// Memory that left a replica and is still charged.
struct Released {
  NodeId node = kNoNode;
  Memory memory;
  std::vector<Event> users;    // Copies that may still touch it.
  Stamp last_use = kAllSoFar;  // The last operator that may.
};

class MemoryRelease {
 public:
  // `table` must outlive the object.
  explicit MemoryRelease(BlockTable& table) : table_(table) {}

  // The replica is absent from now on; a move into it, or out of it, is over.
  Released detach(Block& block, NodeId id, ReplicaEvent event) IK_REQUIRES(engine_mutex);
  // Announces a release at the node, of memory that the caller gives to finish().
  static void announce(Node& node) IK_REQUIRES(engine_mutex) { ++node.moving; }
  // detach(), announced.
  Released begin(Block& block, NodeId id, ReplicaEvent event) IK_REQUIRES(engine_mutex);
  // Frees or parks announced memory. `soon`: other threads wait for it and copies may fill it, so the memory
  // is ordered after its own last user instead of after the whole queue.
  void finish(Released released, bool soon) IK_EXCLUDES(engine_mutex);
  // Releases a replica whose bytes are valid elsewhere, or that is arriving. Requires: this thread has marked
  // the block as moving, and no thread can pin the replica: it is arriving, or closed and unpinned.
  void drop_replica(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);

  // Frees all parked memory of the node whose last copy is done. Returns whether there was any. Releases the
  // lock meanwhile.
  bool reclaim(Node& node) IK_REQUIRES(engine_mutex);
  // Waits for the copies that touch the memory that was parked first. False if none is parked. Releases the
  // lock meanwhile.
  bool wait_parked(Node& node) IK_REQUIRES(engine_mutex);

  // Ends the move into a replica, as landed, failed or cancelled.
  void finish_move(Block& block, NodeId id) IK_REQUIRES(engine_mutex);
  // The replica does not leave with its move any more: the move is over, or the replica leaves otherwise.
  void cancel_vacate(Block& block, NodeId id) IK_REQUIRES(engine_mutex);

 private:
  // Pieces of parked memory that are looked at each time one is parked, so that they never pile up.
  static constexpr size_t kReapedAtOnce = 4;

  std::vector<Memory> reap(Node& node, size_t entries) IK_REQUIRES(engine_mutex);
  static void free_accelerator_memory(Node& node, Released released, bool soon);

  BlockTable& table_;
};

}  // namespace innkeeper
