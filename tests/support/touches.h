// Touches of blocks that are only names, for tests of plans.
#pragma once

#include <cstdint>

#include "plan/history.h"

namespace innkeeper::plan {

inline constexpr NodeId kGpu{0};  // The accelerator that most tests of plans have.

inline Touch read(Name name, int64_t kib = 1) { return {name, KiB(kib), false}; }

}  // namespace innkeeper::plan
