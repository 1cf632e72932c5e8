// Lower bounds of the bytes that a plan moves (docs/design/plans.md), against which plans are measured.
#pragma once

#include "base/types.h"
#include "plan/gaps.h"

namespace innkeeper::plan {

// The least bytes that any plan without recompute fetches to a node in a period. At the operator where most
// bytes are in use or between two uses, the bytes beyond `space` are elsewhere, and each returns before its
// next use.
Bytes live_excess(const Uses& uses, Bytes space);

// The additional free space with which no block would have to leave: the largest excess of live bytes, used
// again or not, over `space`.
Bytes shortage(const Uses& uses, Bytes space);

}  // namespace innkeeper::plan
