// The tmpfs that `innkeeper setup` creates for leases.
#pragma once

#include <string>

#include "cli/setup/steps.h"

namespace innkeeper::cli {

// Returns its size and quotas as mount options that this kernel supports. For another machine the kernel is
// unknown, so there are no quotas.
std::string mount_options(const SetUp& set_up);

// Returns the number of inodes for a size: as many as pages, which exceeds the need of leases of that size.
int64_t inodes_of(Bytes size);

}  // namespace innkeeper::cli
