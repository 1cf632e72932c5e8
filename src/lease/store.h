// The lease files: reads all of them; creates, changes and removes one.
//
//   l<id>  a lease, or a place in the line; its writer holds an OFD write lock on it for as long as it lives
//   t<id>  a draft that is being made under the global lock; other processes treat it as dead
//
// A file without a write lock is dead and claims no bytes. The next caller with the right to do so removes
// it. No crash needs a repair: at each step there is either no file, or an unlocked one.
//
// Holders take write locks, because any user that can read the file can place a read lock, and so could keep
// a dead lease alive. A write lock needs a descriptor open for writing, which only the file's owner gets. New
// files have mode 0600 until they are locked, so that no other user's read lock comes first.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lease/directory.h"
#include "lease/global_lock.h"
#include "lease/open_file.h"
#include "lease/record.h"

namespace innkeeper::lease {

// Most files of one user that are read in the directory. More are ignored: no user can slow the others down,
// and a user with more files harms only their own leases. (Each call removes the user's own dead files, so
// only live ones approach the limit.)
inline constexpr int kMaxFilesPerUser = 1024;

// A live file whose record has not expired.
struct Entry {
  std::string id;
  Record record;
  // Time of the last touch by the machine's clock, ns; waiting processes touch their places to
  // show that they wait.
  int64_t touched_ns = 0;
};

struct Scan {
  std::vector<Entry> live;  // Live entries, sorted by id.
  int own_live = 0;         // Number of live files of this user.
  int dead = 0;  // Number of unlocked or expired files seen; those that this user may remove were removed.
};

// Reads all files. With the lock, dead files are removed; without it they are only skipped. Fails rather than
// omit a lease that may be alive: if no descriptor or memory is left, or the disk fails.
Result<Scan> scan(const Directory& directory, const GlobalLock* lock);

// Returns the record in an open lease file, without an id. None: its holder is gone, the file was removed, or
// it cannot be read.
std::optional<Entry> read_entry(int fd);

// A live file of this process.
struct LeaseFile {
  std::shared_ptr<const Directory> directory;
  OpenFile file;
  std::string id;
  Record record;  // Record as it was last read or written; see reread().

  std::string name() const { return "l" + id; }
  // Returns whether the name still leads to this file. False: its owner, the directory's owner or
  // root has removed it.
  bool named() const;
  // Returns whether a logout of its user removed it (logout.h), rather than a release or a revocation.
  bool lost() const;
};

// Creates a live file, under a new id or that of a lost lease. Requires: the lock is held.
Result<LeaseFile> create(std::shared_ptr<const Directory> directory, Record record, const GlobalLock& lock,
                         std::optional<std::string> id = std::nullopt);

// Notes in the file itself that it is removed to end the lease, and is not lost. Call it before the removal.
void mark_ended(int fd);

// Updates file.record to the record in force: another process that shares the lease may have changed it. On
// failure it stays as it was.
Status reread(LeaseFile& file);

// Replaces file.record by `record` in the file. On failure the old one stays in force. Requires: the lock is
// held, and file.record is in force (only a process's own place in the line is never shared).
Status rewrite(LeaseFile& file, Record record, const GlobalLock& lock);

// Touches a waiting file by its descriptor `fd` to show that its process still waits.
void touch(int fd);

// Removes and closes the file. In a child that kept a copy it only closes.
void remove(LeaseFile& file);

// Adopts a live file by an inherited or received descriptor. The result owns the descriptor only if
// it is proven to be a lease's. Otherwise the descriptor stays as it was, because it may be another
// file of the program.
Result<LeaseFile> adopt_file(std::shared_ptr<const Directory> directory, int fd);

}  // namespace innkeeper::lease
