#include "lease/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace innkeeper::lease {
namespace {

constexpr const char* kVariable = "INNKEEPER_LEASE_DIR";

Status failed(const std::string& what, const std::string& path, int error) {
  return Status(Code::io_error, what + " " + path + ": " + std::strerror(error));
}

// The lock's file has the folder's owner, so that nobody else can replace it.
bool make_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
  const bool good = fd >= 0 && fchmod(fd, 0444) == 0;  // whatever the umask
  if (fd >= 0) ::close(fd);
  return good;
}

// Makes it 1777 at once: under a name of its own first, since between mkdir() and chmod() others would find a
// folder that they cannot use. Somebody else making it meanwhile is success.
Status make(const std::string& path) {
  std::string draft = path + ".XXXXXX";
  if (mkdtemp(draft.data()) == nullptr) return failed("cannot make the lease folder", path, errno);
  const std::string lock = draft + "/" + kLockName;
  int error = 0;
  if (!make_lock(lock) || chmod(draft.c_str(), 01777) != 0 ||
      renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0)
    error = errno;
  if (error != 0) {
    unlink(lock.c_str());
    rmdir(draft.c_str());
  }
  if (error != 0 && error != EEXIST) return failed("cannot make the lease folder", path, error);
  return Status::okay();
}

std::vector<std::string> default_paths() {
  if (const char* path = std::getenv(kVariable); path != nullptr && *path != '\0') return {path};
  return {"/run/lock/innkeeper", "/dev/shm/innkeeper"};
}

}  // namespace

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

Result<std::shared_ptr<const Directory>> Directory::open_existing(const std::string& path, bool& missing) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  missing = fd < 0 && errno == ENOENT;
  if (fd < 0) return failed("cannot open the lease folder", path, errno);
  struct stat about {};
  struct statfs system {};
  if (fstat(fd, &about) != 0 || fstatfs(fd, &system) != 0) {
    const int error = errno;
    ::close(fd);
    return failed("cannot look at the lease folder", path, error);
  }
  const std::shared_ptr<const Directory> directory(new Directory(fd, path, about.st_uid));
  if (const char* name = remote_file_system(static_cast<uint32_t>(system.f_type)); name != nullptr)
    return Status(Code::io_error, "the lease folder " + path + " is on " + name +
                                      ", where locks do not reach every process: set " + kVariable +
                                      " to a folder on this machine, as /dev/shm/innkeeper");
  if ((about.st_mode & S_IWOTH) != 0 && (about.st_mode & S_ISVTX) == 0)
    return Status(Code::io_error, "in the lease folder " + path +
                                      " everybody may remove everybody's leases: chmod +t " + path);
  return directory;
}

Result<std::shared_ptr<const Directory>> Directory::find_first(const std::vector<std::string>& paths,
                                                               bool& missing) {
  Result<std::shared_ptr<const Directory>> found = Status(Code::io_error, "no lease folder is named");
  missing = true;
  for (const std::string& path : paths) {
    if (missing) found = open_existing(path, missing);
  }
  return found;
}

Result<std::shared_ptr<const Directory>> Directory::open_first(const std::vector<std::string>& paths) {
  bool missing = true;
  Result<std::shared_ptr<const Directory>> found = find_first(paths, missing);
  if (!missing) return found;
  Status problem = found.status();
  for (const std::string& path : paths) {
    problem = make(path);
    if (problem.ok()) return open_existing(path, missing);
  }
  return problem;
}

Result<std::shared_ptr<const Directory>> Directory::open(const std::string& path) {
  return open_first({path});
}

Result<std::shared_ptr<const Directory>> Directory::open_default() { return open_first(default_paths()); }

Result<std::shared_ptr<const Directory>> Directory::find_default() {
  bool missing = true;
  return find_first(default_paths(), missing);
}

Directory::~Directory() { ::close(fd_); }

bool Directory::owner_trusted() const { return owner_ == 0 || owner_ == geteuid(); }

}  // namespace innkeeper::lease
