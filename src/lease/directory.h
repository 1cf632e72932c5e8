// The directory of the machine's lease files: its location, and whether it can be trusted to hold them.
//
//   INNKEEPER_LEASE_DIR   that directory, created if it is missing
//   else                  of the existing ones of /run/innkeeper, /run/lock/innkeeper and
//                         /dev/shm/innkeeper: the first that is root's; else the one created first
//   if none exists        the first of the last two that can be created
//
// `innkeeper setup` creates /run/innkeeper, where only root can create files. In the other two any user can
// be first. Therefore root's directory precedes any other user's wherever it is, and a later directory
// shadows no earlier one. All processes see the same directories and choose the same one. A directory that
// exists and cannot be used is an error, because other processes may see it differently. Another directory is
// used then only if it is root's.
//
// All programs that share the GPUs must share the directory: a container needs a mount of it. Its mode is
// 1777, as that of /tmp: any user may add a file, and only a file's owner may change or remove it. A group
// may use 1775. A directory without the sticky bit is refused. It must be in this machine's memory or on its
// disk. Locks on network and FUSE file systems do not reach all processes, so these are refused.
//
// The directory's owner (and root) may remove any user's file, and the owner of alloc.lock may replace it.
// Therefore leases protect against hostile users only if both are root's (protects()).
//
// In a user namespace, user 0 is the user that created the namespace, and root has no number. There,
// /run/innkeeper counts as root's, because only root can create files in /run; a directory of user 0 does not
// count as root's. Without /run/innkeeper no directory is used if the choice depends on which one is root's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace innkeeper::lease {

inline constexpr const char* kLockName = "alloc.lock";
inline constexpr const char* kSetUpDirectory = "/run/innkeeper";

// Returns the directory that an environment variable names; none if it is not set. Fails on a relative path,
// which would be another directory for each program.
Result<std::optional<std::string>> directory_named_by(const char* variable);

// Directories that may hold leases if INNKEEPER_LEASE_DIR is not set.
std::vector<std::string> default_directories();

// A lease directory that exists in addition to the one in use.
struct OtherDirectory {
  std::string path;
  uid_t owner = 0;
  std::string why;  // Reason for which it is not used.
};

class Directory {
 public:
  // Opens the directory by the rules above.
  static Result<std::shared_ptr<const Directory>> open_default();
  static Result<std::shared_ptr<const Directory>> open(const std::string& path);
  // Opens the default directory if it exists; creates nothing.
  static Result<std::shared_ptr<const Directory>> find_default();
  // Opens the existing directory that goes first by the rules above, or else the first that can be created.
  static Result<std::shared_ptr<const Directory>> open_best(const std::vector<std::string>& paths);
  ~Directory();
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  uid_t owner() const { return owner_; }
  // Returns whether the directory is root's by the rules above, in the namespace in which it was opened.
  bool is_roots() const;
  // User that stands for all unmapped ones in that namespace (base/namespaces.h); none: no user namespace.
  std::optional<uid_t> unmapped_user() const { return unmapped_; }
  // Returns whether the directory and its lock are root's: then no user can take another's lease away, or
  // have two callers granted the same bytes.
  bool protects() const;
  // Returns whether this user may create leases there.
  bool writable() const;
  // The other directories that existed when this one was chosen.
  const std::vector<OtherDirectory>& others() const { return others_; }
  // Returns whether new requests use another directory, because another one was set up or this one was moved
  // away. A lease granted here would not be seen there, so no lease may be granted.
  bool superseded() const;

 private:
  struct Candidate;
  Directory(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static Result<std::shared_ptr<Directory>> open_existing(const std::string& path,
                                                          std::optional<uid_t> unmapped, bool& missing);
  static Result<std::shared_ptr<const Directory>> find_best(const std::vector<std::string>& paths,
                                                            bool& missing);
  bool is(const Directory& other) const;

  const int fd_;
  const std::string path_;
  uid_t owner_ = 0;
  std::optional<uid_t> unmapped_;
  int64_t born_ns_ = 0;             // Creation time, ns since 1970; 0: the file system does not report it.
  std::vector<std::string> paths_;  // Paths among which this one was chosen.
  std::vector<OtherDirectory> others_;
};

// Returns the name of a file system on which locks do not reach all processes, or null. `type`
// is statfs' f_type.
const char* remote_file_system(uint64_t type);

}  // namespace innkeeper::lease
