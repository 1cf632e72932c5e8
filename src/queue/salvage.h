// Moves the readable part of a damaged database into its replacement (mend.h).
//
// Output files stay as they are. A lost job that has output is known again by its number, so that `log` finds
// it; a lost job that runs goes on running. A waiting job whose command or needs are lost has failed.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "queue/queue_directory.h"

namespace innkeeper::queue {

class Database;

// Setting: number of jobs that all mendings together have lost.
inline constexpr const char* kLostSetting = "lost";

// Fills the new database `to` with the readable rows of `from` (nullptr: none) and with the jobs that files
// in the directory name. Returns how many jobs are lost, as far as their numbers are known.
Result<int64_t> salvage(Database* from, Database& to, const QueueDirectory& directory);

// Returns whether a job has left a file in the directory.
bool has_traces(const QueueDirectory& directory);

}  // namespace innkeeper::queue
