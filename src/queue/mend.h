// Mends a queue's database that lost pages, its end, or all of its bytes.
//
// What can be read is copied into a new database (salvage.h), which takes the old one's place for all
// processes that have it open. The old one is kept as queue.db.damaged-<seconds since 1970>, or as
// queue.db.unreadable-<seconds> if SQLite could not open it. Another program's database is never changed. Nor
// is a file that is no database, if no job has left a file in the queue's folder.
#pragma once

#include <string>

#include "base/status.h"
#include "lease/open_file.h"
#include "queue/folder.h"

namespace innkeeper::queue {

// Checks the whole database, and mends it if it is damaged. True: it was damaged. A second caller waits, and
// finds it mended. It waits also for each process that holds a DatabaseStays. Blocks: as long as reading and
// copying the database takes.
Result<bool> mend(const Folder& folder);

// While it lives, no process mends the database, so that the name leads to the same file throughout. It waits
// for a mending that has begun. A thread that holds it must not call mend(). Where the lock cannot be made,
// as on a full disk, it holds nothing.
class DatabaseStays {
 public:
  explicit DatabaseStays(const Folder& folder);

 private:
  lease::OpenFile lock_;
};

// The newest damaged file that is kept.
struct KeptDamage {
  std::string path;         // empty: there is none
  bool unreadable = false;  // nothing of it could be read
};
KeptDamage kept_damage(const Folder& folder);

}  // namespace innkeeper::queue
