// Mends a queue's database that lost pages, its end, or all of its bytes.
//
// Readable rows are copied into a new database (salvage.h), which replaces the old one for all processes that
// have it open. The old one is kept as queue.db.damaged-<seconds since 1970>, or as
// queue.db.unreadable-<seconds> if SQLite could not open it. Another program's database is never changed. A
// file that is no database is not changed either, unless a job has left a file in the queue's directory.
#pragma once

#include <string>

#include "base/status.h"
#include "lease/open_file.h"
#include "queue/queue_directory.h"

namespace innkeeper::queue {

// Checks the whole database and mends it if it is damaged. Returns true if it was damaged. A second caller
// waits and finds the database mended. Blocks until every process has released its DatabaseStays, and then
// for as long as reading and copying the database takes.
Result<bool> mend(const QueueDirectory& directory);

// While it lives, no process mends the database, so that the name leads to the same file throughout. The
// constructor waits for a mending that has begun. A thread that holds it must not call mend(). If the lock
// file cannot be created, for example on a full disk, it holds no lock.
class DatabaseStays {
 public:
  explicit DatabaseStays(const QueueDirectory& directory);

 private:
  lease::OpenFile lock_;
};

// The newest copy of a damaged database.
struct KeptDamage {
  std::string path;         // Path of the copy; empty: there is none.
  bool unreadable = false;  // True: no row of it could be read.
};
KeptDamage kept_damage(const QueueDirectory& directory);

}  // namespace innkeeper::queue
