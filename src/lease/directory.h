// The folder of the machine's lease files: where it is, and whether it can be trusted to hold them.
//
//   INNKEEPER_LEASE_DIR   that one, made if it is missing
//   else                  /run/lock/innkeeper, or /dev/shm/innkeeper, whichever is there already (the
//                         first, if both are); if none is, the first of them that can be made
//
// All who share the GPUs must share the folder: into a container it is mounted. It is 1777 as /tmp is:
// everybody may add a file, only a file's owner may change or remove it. It must be in this machine's memory
// or on its disk: locks on network and FUSE file systems do not reach everybody, so these are refused.
//
// The folder's owner (and root) may remove anybody's file, and who owns alloc.lock may replace it. Where
// users do not trust each other root makes both, with tmpfiles.d:
//
//   d /run/lock/innkeeper 1777 root root -
//   f /run/lock/innkeeper/alloc.lock 0444 root root -
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace innkeeper::lease {

inline constexpr const char* kLockName = "alloc.lock";

class Directory {
 public:
  // As above.
  static Result<std::shared_ptr<const Directory>> open_default();
  static Result<std::shared_ptr<const Directory>> open(const std::string& path);
  // The default one if it is there; makes nothing.
  static Result<std::shared_ptr<const Directory>> find_default();
  // The first of them that is there, else the first that can be made.
  static Result<std::shared_ptr<const Directory>> open_first(const std::vector<std::string>& paths);
  ~Directory();
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // Root, or this user: nobody else can remove our leases.
  bool owner_trusted() const;
  uid_t owner() const { return owner_; }

 private:
  Directory(int fd, std::string path, uid_t owner) : fd_(fd), path_(std::move(path)), owner_(owner) {}
  static Result<std::shared_ptr<const Directory>> open_existing(const std::string& path, bool& missing);
  static Result<std::shared_ptr<const Directory>> find_first(const std::vector<std::string>& paths,
                                                             bool& missing);

  const int fd_;
  const std::string path_;
  const uid_t owner_;
};

// The name of a file system on which locks do not reach everybody, or null. `type` is statfs' f_type.
const char* remote_file_system(uint64_t type);

}  // namespace innkeeper::lease
