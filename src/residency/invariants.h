// The check of the engine's invariants I1 to I5 and I7 (docs/design/coherence.md), for tests and for
// INNKEEPER_STRESS.
#pragma once

#include <string>

#include "residency/block/block_table.h"

namespace innkeeper {

// Empty, or the first invariant that is broken and how. Another thread's allocation is charged before it
// exists; a difference in the books counts only if it lasts 0.2 s.
std::string check_invariants(BlockTable& table) IK_EXCLUDES(engine_mutex);

}  // namespace innkeeper
