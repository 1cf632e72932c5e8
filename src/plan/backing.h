// What of the blocks that are away from a program's nodes goes on to a tier below: from the host, which backs
// accelerators, to its disk (docs/design/plans.md).
//
// A schedule as any other, for a node with these uses: a block is wanted there from the step behind which it
// leaves the node above to the one in which it is used there again; in between it may be below, if it is back
// when it starts back up. Where the node has room for all of it nothing moves.
#pragma once

#include <span>

#include "base/types.h"
#include "plan/gaps.h"
#include "plan/schedule.h"

namespace innkeeper::plan {

// `above`: schedules of one program's nodes, of which `clock` tells how long kernels take.
Uses uses_of_backing(NodeId node, const Uses& clock, std::span<const Schedule> above);
// The moves are at that node, and `stored`: what leaves there for the tier below, what arrives from there,
// and what leaves since a node above has it and will write it.
Schedule make_backing_schedule(const Uses& uses, Bytes room, std::span<const Schedule> above);

}  // namespace innkeeper::plan
