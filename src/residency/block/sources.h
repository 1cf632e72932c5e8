// Which replica a block's bytes are copied from, and whether they are lost with a device.
//
// Thread safety: every function reads replicas' states alone; a caller that acts on the answer holds the lock
// or has marked the block as moving.
#pragma once

#include "base/status.h"
#include "residency/block/block_table.h"

namespace innkeeper {

// The valid replica that is cheapest to copy to `to`: a peer that can be reached directly, else the host's,
// else any. kNoNode if there is none.
NodeId source_of(const BlockTable& table, const Block& block, NodeId to);
// Code::device_lost if the block's only bytes were on a device that is lost; ok if the block was never
// written.
Status lost_with(const BlockTable& table, const Block& block);
// Ok if some device can read the block's bytes, or as lost_with().
Status check_not_lost(const BlockTable& table, const Block& block);

}  // namespace innkeeper
