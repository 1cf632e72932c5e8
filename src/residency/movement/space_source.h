// The seam between Mover and Evictor. A move needs memory at its destination, and freeing memory takes moves:
// through this interface a mover calls the part above it.
#pragma once

#include "base/status.h"
#include "residency/block/node.h"
#include "residency/block/reservation.h"

namespace innkeeper {

class SpaceSource {
 public:
  virtual ~SpaceSource() = default;
  // Reserves `size` bytes at the node, as far as `mode` goes to free them. Called without the lock.
  virtual Result<Reservation> reserve(NodeId node, Bytes size, Reserve mode) = 0;
  // The bytes of a replica that was to leave `node` have landed elsewhere: it leaves. Called without the
  // lock, on a block that this thread has marked as moving; the replica is closed and unpinned.
  virtual void finish_eviction(Node& node, Block& block) = 0;
};

}  // namespace innkeeper
