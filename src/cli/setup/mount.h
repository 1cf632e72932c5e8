// The tmpfs that `innkeeper setup` gives leases.
#pragma once

#include <string>

#include "cli/setup/steps.h"

namespace innkeeper::cli {

// Its size and quotas, as mount takes them: what this kernel can do. Of another machine nothing is known, so
// there are no quotas then.
std::string mount_options(const SetUp& set_up);

// How many inodes go with a size: as many as pages, which is more than leases of that size can need.
int64_t inodes_of(Bytes size);

}  // namespace innkeeper::cli
