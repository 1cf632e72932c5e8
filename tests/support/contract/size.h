// Default memory of the contract's checks, bytes.
#pragma once

#include "support/device_rig.h"

namespace innkeeper::test::contract {

inline constexpr size_t kBytes = 4096;
inline constexpr Bytes kSize(kBytes);

}  // namespace innkeeper::test::contract
