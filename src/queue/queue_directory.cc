#include "queue/queue_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lease/directory.h"

namespace innkeeper::queue {
namespace {

Status failed(const std::string& what, const std::string& path, int error) {
  std::string message = what + " " + path + ": " + std::strerror(error);
  if (error == EROFS || error == EACCES || error == ENOSPC || error == EDQUOT)
    message += std::string(" (") + kDirectoryVariable + " names another directory for the queue)";
  return Status(Code::io_error, message);
}

// Creates a directory and its parents, as `mkdir -p -m 700` does.
Status make(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return Status::okay();
  if (errno != ENOENT) return failed("cannot make the queue's directory", path, errno);
  const std::string parent = std::filesystem::path(path).parent_path();
  if (parent.empty() || parent == path) return failed("cannot make the queue's directory", path, ENOENT);
  IK_RETURN_IF_ERROR(make(parent));
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return failed("cannot make the queue's directory", path, errno);
  return Status::okay();
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Result<std::shared_ptr<const QueueDirectory>> QueueDirectory::open_default() {
  const Result<std::optional<std::string>> named = lease::directory_named_by(kDirectoryVariable);
  IK_RETURN_IF_ERROR(named.status());
  if (named.value()) return open(*named.value());
  // The XDG standard requires programs to ignore a relative path here.
  if (const std::string state = variable("XDG_STATE_HOME"); state.starts_with('/'))
    return open(state + "/innkeeper/queue");
  const std::string home = variable("HOME");
  if (home.empty())
    return Status(Code::io_error,
                  std::string("there is no HOME to keep the queue in: set ") + kDirectoryVariable);
  return open(home + "/.local/state/innkeeper/queue");
}

Result<std::shared_ptr<const QueueDirectory>> QueueDirectory::open(const std::string& name) {
  std::error_code error;
  std::string path = std::filesystem::absolute(name, error).lexically_normal();
  if (error) return failed("cannot find the queue's directory", name, error.value());
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  IK_RETURN_IF_ERROR(make(path));
  struct stat about {};
  struct statfs system {};
  if (stat(path.c_str(), &about) != 0 || statfs(path.c_str(), &system) != 0)
    return failed("cannot look at the queue's directory", path, errno);
  if (!S_ISDIR(about.st_mode)) return failed("cannot use as the queue's directory", path, ENOTDIR);
  if (about.st_uid != geteuid())
    return Status(Code::io_error, "the queue's directory " + path + " belongs to somebody else (uid " +
                                      std::to_string(about.st_uid) + "): set " + kDirectoryVariable +
                                      " to one of your own");
  if (const char* remote = lease::remote_file_system(static_cast<uint32_t>(system.f_type)); remote != nullptr)
    return Status(Code::io_error, "the queue's directory " + path + " is on " + remote +
                                      ", where locks do not reach every process: set " + kDirectoryVariable +
                                      " to a directory on this machine");
  if ((about.st_mode & 0077) != 0 && chmod(path.c_str(), 0700) != 0)
    return failed("cannot make the queue's directory private", path, errno);
  const std::shared_ptr<const QueueDirectory> directory(new QueueDirectory(path));
  for (const std::string& part : {directory->life_directory(), directory->output_directory()})
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
      return failed("cannot make the queue's directory", part, errno);
  for (const std::string& file : {directory->runner_lock(), directory->wake_file()}) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return failed("cannot make", file, errno);
    close(fd);
  }
  return directory;
}

std::string QueueDirectory::life(int64_t job, int attempt) const {
  return life_directory() + "/" + std::to_string(job) + "." + std::to_string(attempt);
}

std::string QueueDirectory::output(int64_t job, int attempt) const {
  return output_directory() + "/" + std::to_string(job) + "." + std::to_string(attempt) + ".log";
}

void QueueDirectory::wake() const { utimensat(AT_FDCWD, wake_file().c_str(), nullptr, 0); }

}  // namespace innkeeper::queue
