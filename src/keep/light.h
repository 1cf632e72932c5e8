// Reduces the resources of a process that only waits, perhaps for weeks.
#pragma once

#include <vector>

namespace innkeeper::keep {

// Closes all its descriptors except the standard files and `kept`, since another process may wait for the end
// of a pipe or for a lock. Changes to the root directory, so that file systems can be unmounted.
void let_go(const std::vector<int>& kept);

// Drops the pages of its code; the process reads back those that it uses. This frees 2 MB for each process.
// It takes a millisecond, so it is for processes that have waited for a while.
void drop_code();

}  // namespace innkeeper::keep
