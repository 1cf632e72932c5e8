// The folder of the machine's lease files: where it is, and whether it can be trusted to hold them.
//
//   INNKEEPER_LEASE_DIR   that one, made if it is missing
//   else                  of /run/innkeeper, /run/lock/innkeeper and /dev/shm/innkeeper, of those that
//                         are there, the first that is root's; else the one that was made first
//   if none is there      the first of the last two that can be made
//
// `innkeeper setup` makes /run/innkeeper, where nobody but root can make anything. In the other two anybody
// can be first, so root's goes before anybody else's wherever it is, and who comes later with another folder
// shadows nothing: all see the same folders and choose the same one. A folder that is there and cannot be
// used is an error, not a reason to use another, unless there is root's: others may see it differently.
//
// All who share the GPUs must share the folder: into a container it is mounted. It is 1777 as /tmp is:
// everybody may add a file, only a file's owner may change or remove it; or 1775 for a group. Without the
// sticky bit it is refused. It must be in this machine's memory or on its disk: locks on network and FUSE
// file systems do not reach everybody, so these are refused.
//
// The folder's owner (and root) may remove anybody's file, and who owns alloc.lock may replace it. So unless
// both are root's (protects()) leases protect among friends only.
//
// In a user namespace, user 0 is the user who created the namespace, and root has no number. There,
// /run/innkeeper counts as root's, because only root can create files in /run; a folder of user 0 does not
// count as root's. Without /run/innkeeper no folder is used if the choice depends on which one is root's.
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
inline constexpr const char* kSetUpFolder = "/run/innkeeper";

// The folder that an environment variable names; none if it is not set. Fails on a relative path, which would
// be another folder for each program.
Result<std::optional<std::string>> folder_named_by(const char* variable);

// Where leases may be without INNKEEPER_LEASE_DIR.
std::vector<std::string> default_folders();

// A lease folder that is there beside the one in use.
struct OtherFolder {
  std::string path;
  uid_t owner = 0;
  std::string why;  // it is not used
};

class Directory {
 public:
  // As above.
  static Result<std::shared_ptr<const Directory>> open_default();
  static Result<std::shared_ptr<const Directory>> open(const std::string& path);
  // The default one if it is there; makes nothing.
  static Result<std::shared_ptr<const Directory>> find_default();
  // The one of them that goes first, if any is there, else the first that can be made.
  static Result<std::shared_ptr<const Directory>> open_best(const std::vector<std::string>& paths);
  ~Directory();
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  uid_t owner() const { return owner_; }
  // As was said above, of the namespace in which it was opened.
  bool is_roots() const;
  std::optional<uid_t> unmapped_user() const { return unmapped_; }  // of that (base/namespaces.h)
  // Root's, its lock too: no user can take another's lease away, or have two callers given the same bytes.
  bool protects() const;
  // This user may make leases there.
  bool writable() const;
  // Those that were there as well when this one was chosen.
  const std::vector<OtherFolder>& others() const { return others_; }
  // Who asks now is sent elsewhere: another has been set up, or this one was moved away. What is granted here
  // is not seen there, so nothing may be.
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
  int64_t born_ns_ = 0;             // 0: the file system does not say
  std::vector<std::string> paths_;  // among which it was chosen
  std::vector<OtherFolder> others_;
};

// The name of a file system on which locks do not reach everybody, or null. `type` is statfs' f_type.
const char* remote_file_system(uint64_t type);

}  // namespace innkeeper::lease
