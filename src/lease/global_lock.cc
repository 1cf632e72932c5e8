#include "lease/global_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "lease/kill_point.h"
#include "lease/process.h"
#include "lease/record.h"

namespace innkeeper::lease {
namespace {

// Between two looks at a lock that is held. Longer only after a second: those who ask in between must not be
// served for ever before who waits.
std::chrono::microseconds pause_after(int attempt) {
  return std::chrono::microseconds(attempt < 7 ? 20 << attempt : attempt < 1000 ? 1000 : 4000);
}

// "pid 123 (python3) of alice", from the kernel's list of locks; empty if it cannot be seen.
std::string holder_of(ino_t inode) {
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    // 3: FLOCK  ADVISORY  WRITE 1234 00:19:5678 0 EOF
    std::istringstream words(line);
    std::string number, kind, advisory, mode, pid, file;
    if (!(words >> number >> kind >> advisory >> mode >> pid >> file) || kind != "FLOCK") continue;
    if (file.substr(file.rfind(':') + 1) != std::to_string(inode)) continue;
    std::ifstream name("/proc/" + pid + "/comm");
    std::string command;
    std::getline(name, command);
    struct stat about {};
    const bool owned = stat(("/proc/" + pid).c_str(), &about) == 0;
    return "pid " + pid + (command.empty() ? "" : " (" + printable(command) + ")") +
           (owned ? " of " + user_name(about.st_uid) : "");
  }
  return "";
}

constexpr int kQuickAttempts = 4;
constexpr int kOpenFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

}  // namespace

Status GlobalLock::open(const Directory& directory) {
  const std::string path = directory.path() + "/" + kLockName;
  // Without O_CREAT first: with fs.protected_regular it fails on another user's file in a sticky folder.
  for (int attempt = 0; attempt < 3; ++attempt) {
    file_ = OpenFile([&] { return openat(directory.fd(), kLockName, kOpenFlags); });
    if (file_.valid() || errno != ENOENT) break;
    file_ = OpenFile([&] { return openat(directory.fd(), kLockName, kOpenFlags | O_CREAT | O_EXCL, 0444); });
    if (file_.valid() && fchmod(file_.fd(), 0444) != 0)  // whatever the umask
      return Status(Code::io_error, "cannot make " + path + " readable: " + std::strerror(errno));
    if (file_.valid() || errno != EEXIST) break;
  }
  if (!file_.valid()) return Status(Code::io_error, "cannot open " + path + ": " + std::strerror(errno));
  struct stat about {};
  if (fstat(file_.fd(), &about) != 0 || !S_ISREG(about.st_mode))
    return Status(Code::io_error, path + " is not a file: remove it");
  return Status::okay();
}

Status GlobalLock::lock(const Directory& directory, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  sigset_t all;
  sigfillset(&all);
  for (int attempt = 0;; ++attempt) {
    if (!file_.valid()) IK_RETURN_IF_ERROR(open(directory));
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
    if (flock(file_.fd(), LOCK_EX | LOCK_NB) == 0) {
      struct stat ours {
      }, named{};
      if (fstat(file_.fd(), &ours) == 0 &&
          fstatat(directory.fd(), kLockName, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
          ours.st_ino == named.st_ino) {
        held_ = true;
        step("locked");
        return Status::okay();
      }
      file_.close();  // the folder's owner has replaced it
    }
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
    if (std::chrono::steady_clock::now() >= until) {
      struct stat about {};
      const bool known = file_.valid() && fstat(file_.fd(), &about) == 0;
      const std::string holder = known ? holder_of(about.st_ino) : "";
      file_.close();
      return Status(Code::busy, directory.path() + "/" + kLockName + " has been locked for " +
                                    std::to_string(limit.count()) + " ms" +
                                    (holder.empty() ? "" : " by " + holder) +
                                    "; it is held for less than one: has that process been stopped?");
    }
    // Polled, since flock() cannot wait for a limited time. It is held too shortly for that to matter.
    if (attempt < kQuickAttempts)
      sched_yield();
    else
      std::this_thread::sleep_for(pause_after(attempt - kQuickAttempts));
  }
}

void GlobalLock::unlock() {
  if (!held_) return;
  held_ = false;
  // Not by close() alone: a child that is being forked may have a copy at this moment.
  flock(file_.fd(), LOCK_UN);
  file_.close();
  step("unlocked");
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

}  // namespace innkeeper::lease
