// A queue's database of which something is lost: pages that a disk cannot read any more, the end of a file
// that was cut off, or all of it.
//
// What can be read is put into a new one (salvage.h), which takes its place for all who have it open. The
// damaged one is kept beside it, as queue.db.damaged-<seconds since 1970>, or where nothing of it could be
// read as queue.db.unreadable-<seconds>. Other programs' databases are left alone, and so is a file that is
// none in a folder where no job has left anything.
#pragma once

#include <string>

#include "base/status.h"
#include "queue/folder.h"

namespace innkeeper::queue {

// Looks at all of the database, and mends it if it must. One at a time; whoever comes second finds it mended.
// True: it was damaged, and is not any more. A job that is added by somebody else in the moment in which the
// new one takes its place may be lost.
Result<bool> mend(const Folder& folder);

// There is no database, or an empty one, and jobs have left files: a new one would give their numbers again.
bool is_emptied(const Folder& folder);

// The newest damaged file that is kept.
struct KeptDamage {
  std::string path;         // empty: there is none
  bool unreadable = false;  // nothing of it could be read
};
KeptDamage kept_damage(const Folder& folder);

}  // namespace innkeeper::queue
