// What a process gives back that does nothing but wait, perhaps for weeks.
#pragma once

#include <vector>

namespace innkeeper::keep {

// Closes all its descriptors but the standard files and these, since another process may wait for the end of
// a pipe or for a lock. Changes to the folder /, so that file systems can be unmounted.
void let_go(const std::vector<int>& kept);

// Drops the pages of its code, of which it gets back what it uses: 2 MB for each process. It takes a
// millisecond, so it is for those that have waited for a while.
void drop_code();

}  // namespace innkeeper::keep
