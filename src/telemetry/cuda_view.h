// The GPUs as CUDA numbers them in this process, once something in it has started CUDA: from then on
// CUDA_VISIBLE_DEVICES is read no more, and only the driver knows which card is ordinal 0. It is asked
// without starting it: a library that is not loaded is not loaded here, and one that was not started says so.
//
// In a child of fork() whose parent has started CUDA the driver cannot be used, and may say either.
//
// Thread safe. Blocks: some microseconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

// 32 lower-case hexadecimal digits for each ordinal, empty for one that cannot tell its UUID. None: CUDA has
// not been started here.
std::optional<std::vector<std::string>> cuda_ordinals();

// The same as UUIDs of the snapshot's cards and MIG instances; empty for what it does not have.
std::optional<std::vector<std::string>> cuda_view(const Snapshot& cards);

// "GPU-8F6C1A2B-0000-..." as CUDA's digits: without its prefix and hyphens, in lower case.
std::string uuid_digits(std::string_view uuid);

}  // namespace innkeeper::telemetry
