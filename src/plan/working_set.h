// What a program has a use for where nobody knows a round of it.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"
#include "plan/history.h"

namespace innkeeper::plan {

// By node: the most bytes that are alive at a time there, of the blocks that the last so many operators
// touch; each from its first touch among those on.
std::array<Bytes, kMaxNodes> working_set(const History& history, int64_t operators);

}  // namespace innkeeper::plan
