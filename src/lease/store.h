// The lease files: reading all of them, adding, changing and removing one.
//
//   l<id>  a lease, or a place in the line; its writer holds an OFD write lock on it for as long as it lives
//   t<id>  one that is being made, under the global lock: to everybody else it is dead
//
// A file that nobody has write-locked is dead and claims nothing. It is removed by the next caller who may.
// No crash needs a repair: at each step there is either no file, or an unlocked one.
//
// Why write locks, asked for as a read lock would be: a read lock can be put by everybody who can read the
// file, so a stranger could keep a dead lease alive with one. A write lock needs a descriptor open for
// writing, which only the file's owner gets. New files are 0600 until they are locked, so that nobody's read
// lock comes first.
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

// What one user may have in the folder. More are not read: nobody can make the others slow, and who has more
// harms only his own leases. (Each call removes one's own dead files, so only the live ones come near it.)
inline constexpr int kMaxFilesPerUser = 1024;

// A live file whose record has not expired.
struct Entry {
  std::string id;
  Record record;
  // When it was last touched, by the machine's clock; waiting ones are touched to show that they wait.
  int64_t touched_ns = 0;
};

struct Scan {
  std::vector<Entry> live;  // by id
  int own_live = 0;         // files of this user
  int dead = 0;             // unlocked or expired ones that were seen; removed where this user may
};

// Reads all. With the lock dead files are removed, without it they are only skipped. Fails rather than leave
// out a lease that may be alive: where no descriptor or no memory is left, or the disk fails.
Result<Scan> scan(const Directory& directory, const GlobalLock* lock);

// The record in an open lease file, without an id. None: its holder is gone, the file was removed, or it
// cannot be read.
std::optional<Entry> read_entry(int fd);

// One's own live file.
struct LeaseFile {
  std::shared_ptr<const Directory> directory;
  OpenFile file;
  std::string id;
  Record record;  // as it was last read or written; see reread()

  std::string name() const { return "l" + id; }
  // The name still leads to this file. False: its owner, the folder's or root has removed it.
  bool named() const;
  // Its user's logging out has removed it (logout.h): no release and no revocation did.
  bool lost() const;
};

// Makes a live file, under a new id or that of one that was lost. Requires: the lock is held.
Result<LeaseFile> create(std::shared_ptr<const Directory> directory, Record record, const GlobalLock& lock,
                         std::optional<std::string> id = std::nullopt);

// Notes in the file itself that it is removed to end the lease, and is not lost. Before it is removed.
void mark_ended(int fd);

// Brings file.record up to what is in force: another process that shares the lease may have changed it. On
// failure it stays as it was.
Status reread(LeaseFile& file);

// Puts `record` in force in place of file.record. On failure the old one stays. Requires: the lock is held,
// and file.record is what is in force (only one's own place in the line is never shared).
Status rewrite(LeaseFile& file, Record record, const GlobalLock& lock);

// Shows that a waiting one still waits. `fd`: its descriptor.
void touch(int fd);

// Removes and closes it. In a child that kept a copy it only closes.
void remove(LeaseFile& file);

// Takes over a live file by a descriptor that was inherited or received. It is the result's only once it has
// been proven to be a lease's; else it is left as it was: it may be another file of the program.
Result<LeaseFile> adopt_file(std::shared_ptr<const Directory> directory, int fd);

}  // namespace innkeeper::lease
