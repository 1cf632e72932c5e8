// The open descriptors of this process.
#pragma once

#include <vector>

namespace innkeeper {

// Returns all open descriptors except the three standard files and `kept`, in no order.
std::vector<int> open_descriptors_but(const std::vector<int>& kept);

// Opens /dev/null as these standard files, for a process that neither reads nor prints.
void open_nowhere(int first = 0, int last = 2);

}  // namespace innkeeper
