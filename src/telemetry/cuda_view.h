// The GPUs as CUDA numbers them in this process, once CUDA is started in it. From then on CUDA no longer
// reads CUDA_VISIBLE_DEVICES, and only the driver knows which GPU is ordinal 0. The query does not start it:
// a library that is not loaded is not loaded here, and one that was not started reports that.
//
// In a child of fork() whose parent has started CUDA the driver cannot be used, and may report either.
//
// Thread safe. Blocks: some microseconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

// Returns 32 lower-case hexadecimal digits for each ordinal; empty: its UUID is unknown. None: CUDA has not
// been started here.
std::optional<std::vector<std::string>> cuda_ordinals();

// Returns the same as UUIDs of the snapshot's GPUs and MIG instances; empty: the snapshot lacks the GPU.
std::optional<std::vector<std::string>> cuda_view(const Snapshot& gpus);

// Converts "GPU-8F6C1A2B-0000-..." to CUDA's digits: without prefix and hyphens, in lower case.
std::string uuid_digits(std::string_view uuid);

}  // namespace innkeeper::telemetry
