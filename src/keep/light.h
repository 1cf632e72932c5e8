// What a process gives back that does nothing but wait, perhaps for weeks.
#pragma once

#include <vector>

namespace innkeeper::keep {

// Closes all that it has open but its standard files and these: somebody may wait for the end of a pipe, or
// for a lock. Goes to the folder /, so that no file system is in use.
void let_go(const std::vector<int>& kept);

// Drops the pages of its code, of which it gets back what it uses: 2 MB for each process. It takes a
// millisecond, so it is for those that have waited for a while.
void drop_code();

}  // namespace innkeeper::keep
