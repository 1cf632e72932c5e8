// How little could be moved (docs/design/plans.md): what a plan is measured against.
#pragma once

#include "base/types.h"
#include "plan/gaps.h"

namespace innkeeper::plan {

// The least bytes that arrive at a node in a period, whatever is planned for it: at the operator where most
// bytes are between two uses, or in use, those beyond the room are elsewhere, and each is back before its
// next use. (A block that is recomputed would not have to be; nothing is.)
Bytes live_excess(const Uses& uses, Bytes room);

// The bytes of room more with which nothing would have to leave: by how much all that is alive, wanted again
// or not, exceeds the room where it does most.
Bytes shortage(const Uses& uses, Bytes room);

}  // namespace innkeeper::plan
