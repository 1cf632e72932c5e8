// How much memory the checks of the contract take, where it does not matter.
#pragma once

#include "support/device_rig.h"

namespace innkeeper::test::contract {

inline constexpr size_t kBytes = 4096;
inline constexpr Bytes kSize(kBytes);

}  // namespace innkeeper::test::contract
