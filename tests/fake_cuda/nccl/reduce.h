// Sums of several ranks' data, in the order of the ranks.
#pragma once

#include <string>
#include <vector>

#include "nccl/abi.h"

namespace fake_nccl {

// `parts`: each rank's bytes, all of one length. False for an unsupported type or operation.
bool reduce(const std::vector<std::string>& parts, Type type, Operation operation, char* result);

}  // namespace fake_nccl
