#include "lease/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/namespaces.h"
#include "lease/record.h"

namespace innkeeper::lease {
namespace {

constexpr const char* kVariable = "INNKEEPER_LEASE_DIR";

Status failed(const std::string& what, const std::string& path, int error) {
  return Status(Code::io_error, what + " " + path + ": " + std::strerror(error));
}

// Creates the lock's file with the directory's owner, so that no other user can replace it.
bool make_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
  const bool good = fd >= 0 && fchmod(fd, 0444) == 0;  // Sets the mode whatever the umask is.
  if (fd >= 0) ::close(fd);
  return good;
}

// Creates the directory with mode 1777 atomically. It first gets a temporary name: between mkdir() and
// chmod() other users would find a directory that they cannot use. If another process creates it meanwhile,
// that is success.
Status make(const std::string& path) {
  std::string draft = path + ".XXXXXX";
  if (mkdtemp(draft.data()) == nullptr) return failed("cannot make the lease directory", path, errno);
  const std::string lock = draft + "/" + kLockName;
  int error = 0;
  if (!make_lock(lock) || chmod(draft.c_str(), 01777) != 0 ||
      renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0)
    error = errno;
  if (error != 0) {
    unlink(lock.c_str());
    rmdir(draft.c_str());
  }
  if (error != 0 && error != EEXIST) return failed("cannot make the lease directory", path, error);
  return Status::okay();
}

std::string owner_name(uid_t owner) {
  if (owner == 0 && !unmapped_user()) return "root's";
  return owner == geteuid() ? "this user's own" : "uid " + std::to_string(owner) + "'s";
}

}  // namespace

Result<std::optional<std::string>> directory_named_by(const char* variable) {
  const char* const path = std::getenv(variable);
  if (path == nullptr || *path == '\0') return std::optional<std::string>();
  if (*path != '/')
    return Status(Code::io_error,
                  std::string(variable) + " is \"" + printable(path) +
                      "\", which is another directory wherever a program is: name it from / on");
  return std::optional<std::string>(path);
}

std::vector<std::string> default_directories() {
  return {kSetUpDirectory, "/run/lock/innkeeper", "/dev/shm/innkeeper"};
}

const char* remote_file_system(uint64_t type) {
  switch (type) {
    case 0x6969: return "NFS";
    case 0x517B: return "SMB";
    case 0xFF534D42:
    case 0xFE534D42: return "SMB";
    case 0x01021997: return "9p";
    case 0x65735546: return "FUSE";
    case 0x6A656A63: return "virtiofs";
    case 0x00C36400: return "Ceph";
    case 0x0BD00BD0: return "Lustre";
    case 0x47504653: return "GPFS";
    case 0x5346414F: return "AFS";
    case 0x73757245: return "Coda";
    case 0x01161970: return "GFS2";
    case 0x7461636F: return "OCFS2";
    default: return nullptr;
  }
}

Result<std::shared_ptr<Directory>> Directory::open_existing(const std::string& path,
                                                            std::optional<uid_t> unmapped, bool& missing) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  missing = fd < 0 && errno == ENOENT;
  if (fd < 0) return failed("cannot open the lease directory", path, errno);
  const std::shared_ptr<Directory> directory(new Directory(fd, path));
  struct statx about {};
  struct statfs system {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &about) != 0 || fstatfs(fd, &system) != 0)
    return failed("cannot look at the lease directory", path, errno);
  directory->owner_ = about.stx_uid;
  directory->unmapped_ = unmapped;
  if ((about.stx_mask & STATX_BTIME) != 0)
    directory->born_ns_ = int64_t{about.stx_btime.tv_sec} * 1'000'000'000 + about.stx_btime.tv_nsec;
  if (const char* name = remote_file_system(static_cast<uint32_t>(system.f_type)); name != nullptr)
    return Status(Code::io_error, "the lease directory " + path + " is on " + name +
                                      ", where locks do not reach every process: set " + kVariable +
                                      " to a directory on this machine, as /dev/shm/innkeeper");
  const bool others_may_write = (about.stx_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_may_write && (about.stx_mode & S_ISVTX) == 0)
    return Status(Code::io_error,
                  "in the lease directory " + path + ", which is " + owner_name(about.stx_uid) +
                      " and has no sticky bit, " +
                      ((about.stx_mode & S_IWOTH) != 0 ? "everybody" : "everybody of its group") +
                      " may remove everybody's leases: chmod +t " + path);
  return directory;
}

// A path at which a file or directory exists.
struct Directory::Candidate {
  std::string path;
  uid_t owner = 0;
  std::shared_ptr<Directory> opened;  // The opened directory; null: see `problem`.
  Status problem;
  bool is_roots() const { return opened && opened->is_roots(); }
};

bool Directory::is_roots() const {
  if (!unmapped_) return owner_ == 0;
  return path_ == kSetUpDirectory && (owner_ == 0 || owner_ == *unmapped_);
}

Result<std::shared_ptr<const Directory>> Directory::find_best(const std::vector<std::string>& paths,
                                                              bool& missing) {
  const std::optional<uid_t> unmapped = innkeeper::unmapped_user();
  std::vector<Candidate> there;
  Status problem(Code::io_error, "no lease directory is named");
  for (const std::string& path : paths) {
    bool none = false;
    Result<std::shared_ptr<Directory>> opened = open_existing(path, unmapped, none);
    if (!opened.ok()) problem = opened.status();
    if (none) continue;
    struct stat about {};
    if (opened.ok())
      there.push_back({path, opened.value()->owner_, opened.value(), {}});
    else
      there.push_back({path, lstat(path.c_str(), &about) == 0 ? about.st_uid : 0, nullptr, opened.status()});
  }
  missing = there.empty();
  if (missing) return problem;
  const auto first =
      std::find_if(there.begin(), there.end(), [](const Candidate& each) { return each.is_roots(); });
  const Candidate* best = first == there.end() ? nullptr : &*first;
  for (const Candidate& each : there) {
    if (best != nullptr && best->is_roots()) break;
    if (!each.opened) {
      if (paths.size() < 2) return each.problem;
      return Status(
          each.problem.code(),
          each.problem.message() + "; `innkeeper setup`, as root, makes one that is used before it");
    }
    const bool known = best != nullptr && each.opened->born_ns_ > 0 && best->opened->born_ns_ > 0;
    if (best == nullptr || (known && each.opened->born_ns_ < best->opened->born_ns_)) best = &each;
  }
  if (unmapped && !best->is_roots())
    for (const Candidate& each : there)
      if (&each != best && each.owner == *unmapped)
        return Status(Code::io_error,
                      "in this user namespace nobody can tell whether the lease directory " + each.path +
                          " is root's and goes before " + best->path +
                          ": `innkeeper setup`, as root outside, makes one that does; or set " + kVariable +
                          " to the one that is used outside");
  const std::shared_ptr<Directory> chosen = best->opened;
  chosen->paths_ = paths;
  for (const Candidate& each : there) {
    if (&each == best) continue;
    chosen->others_.push_back({each.path, each.owner,
                               each.opened == nullptr ? each.problem.message()
                               : !best->is_roots()    ? "it was made later"
                               : !each.is_roots()     ? "it is not root's"
                                                      : "it comes later in the list"});
  }
  return std::shared_ptr<const Directory>(chosen);
}

Result<std::shared_ptr<const Directory>> Directory::open_best(const std::vector<std::string>& paths) {
  bool missing = true;
  Result<std::shared_ptr<const Directory>> found = find_best(paths, missing);
  if (!missing) return found;
  Status problem = found.status();
  for (const std::string& path : paths) {
    // `innkeeper setup` creates this directory and gives it a tmpfs of its own.
    if (path == kSetUpDirectory) continue;
    problem = make(path);
    if (problem.ok()) return find_best(paths, missing);
  }
  return problem;
}

Result<std::shared_ptr<const Directory>> Directory::open(const std::string& path) {
  return open_best({path});
}

Result<std::shared_ptr<const Directory>> Directory::open_default() {
  const Result<std::optional<std::string>> named = directory_named_by(kVariable);
  if (!named.ok()) return named.status();
  if (named.value()) return open(*named.value());
  return open_best(default_directories());
}

Result<std::shared_ptr<const Directory>> Directory::find_default() {
  bool missing = true;
  const Result<std::optional<std::string>> named = directory_named_by(kVariable);
  if (!named.ok()) return named.status();
  if (named.value()) return find_best({*named.value()}, missing);
  return find_best(default_directories(), missing);
}

Directory::~Directory() { ::close(fd_); }

bool Directory::protects() const {
  struct stat lock {};
  return is_roots() && fstatat(fd_, kLockName, &lock, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(lock.st_mode) &&
         lock.st_uid == owner_;
}

bool Directory::writable() const { return faccessat(fd_, ".", W_OK | X_OK, AT_EACCESS) == 0; }

bool Directory::is(const Directory& other) const {
  struct stat ours {
  }, theirs{};
  return fstat(fd_, &ours) == 0 && fstat(other.fd_, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
         ours.st_ino == theirs.st_ino;
}

bool Directory::superseded() const {
  bool missing = false;
  const Result<std::shared_ptr<const Directory>> now = find_best(paths_, missing);
  if (now.ok()) return !is(*now.value());
  // No present request gets a lease anywhere. The directory in use is superseded only if it is gone.
  struct stat ours {
  }, named{};
  return fstat(fd_, &ours) != 0 || stat(path_.c_str(), &named) != 0 || ours.st_ino != named.st_ino ||
         ours.st_dev != named.st_dev;
}

}  // namespace innkeeper::lease
