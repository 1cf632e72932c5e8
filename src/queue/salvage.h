// What of a damaged database goes into the one that takes its place (mend.h).
//
// Output files are left as they are: a job that is lost and has some is known again by its number, so that
// `log` finds it, and one that runs goes on running. A job that waited and whose command or needs are lost
// has failed.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "queue/folder.h"

namespace innkeeper::queue {

class Database;

// The setting that says how many jobs were lost by all mendings together.
inline constexpr const char* kLostSetting = "lost";

// Puts into `to`, which is new, what can be read of `from` (nullptr: nothing can), and what the folder's
// files tell of jobs. Gives how many jobs are lost as far as their numbers are known.
Result<int64_t> salvage(Database* from, Database& to, const Folder& folder);

// Some job has left a file here.
bool has_traces(const Folder& folder);

}  // namespace innkeeper::queue
