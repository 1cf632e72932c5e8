// A queue's database of which a page cannot be read: a disk has lost it. One that was cut off is left alone.
//
// What can be read is put into a new one, which takes its place at once for all who have it open. The damaged
// one is kept beside it, as queue.db.damaged-<seconds since 1970>. Output files are left as they are: a job
// that is lost and has some is known again by its number, so that `log` finds it, and one that runs goes on
// running. A job that waited and whose command or needs are lost has failed.
#pragma once

#include <string>

#include "base/status.h"
#include "queue/folder.h"

namespace innkeeper::queue {

class Database;

// Looks at all of the database, and mends it if it must. One at a time; whoever comes second finds it mended.
// True: it was damaged, and is not any more. A job that is added by somebody else in the moment in which the
// new one takes its place may be lost.
Result<bool> mend(const Folder& folder);

// The setting that says how many jobs were lost by all mendings together.
inline constexpr const char* kLostSetting = "lost";

// The newest damaged file that is kept; empty: there is none.
std::string kept_damage(const Folder& folder);

}  // namespace innkeeper::queue
