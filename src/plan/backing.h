// Schedules a backing node: the blocks that leave a program's nodes for the host, which backs accelerators,
// may go on to its disk (docs/design/plans.md).
//
// The schedule is made as any other, from uses at the backing node. A block is needed there from the step
// after which it leaves the node above to the step that uses it above again. In between it may be on the tier
// below, if it returns before its fetch starts. If all blocks fit the backing node nothing moves.
#pragma once

#include <span>

#include "base/types.h"
#include "plan/gaps.h"
#include "plan/schedule.h"

namespace innkeeper::plan {

// `above`: schedules of one program's nodes. `clock`: uses at one of them, for the time that kernels take.
Uses uses_of_backing(NodeId node, const Uses& clock, std::span<const Schedule> above);
// The moves are at the backing node, and `stored`: evictions to the tier below, fetches from it, and
// evictions of blocks that a node above has and will write.
Schedule make_backing_schedule(const Uses& uses, Bytes space, std::span<const Schedule> above);

}  // namespace innkeeper::plan
