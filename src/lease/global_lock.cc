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
#include <thread>

#include "lease/kill_point.h"

namespace innkeeper::lease {
namespace {

// Pause between two attempts to take a held lock. It grows only after a second: callers that arrive in
// between must not be served before the waiting caller for ever.
std::chrono::microseconds pause_after(int attempt) {
  return std::chrono::microseconds(attempt < 7 ? 20 << attempt : attempt < 1000 ? 1000 : 4000);
}

constexpr int kQuickAttempts = 4;
// A lock that is held for longer than this is examined by the watch.
constexpr std::chrono::milliseconds kSuspicious{200};
// Shorter than the time after which a holder is overridden.
constexpr std::chrono::milliseconds kOverslept{1000};
constexpr int kOpenFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

}  // namespace

Status GlobalLock::open(const Directory& directory) {
  const std::string path = directory.path() + "/" + kLockName;
  // The first attempt uses no O_CREAT: with fs.protected_regular O_CREAT fails on another user's file in a
  // sticky directory.
  for (int attempt = 0; attempt < 3; ++attempt) {
    file_ = OpenFile([&] { return openat(directory.fd(), kLockName, kOpenFlags); });
    if (file_.valid() || errno != ENOENT) break;
    file_ = OpenFile([&] { return openat(directory.fd(), kLockName, kOpenFlags | O_CREAT | O_EXCL, 0444); });
    if (file_.valid() && fchmod(file_.fd(), 0444) != 0)  // Sets the mode whatever the umask is.
      return Status(Code::io_error, "cannot make " + path + " readable: " + std::strerror(errno));
    if (file_.valid() || errno != EEXIST) break;
  }
  if (!file_.valid()) return Status(Code::io_error, "cannot open " + path + ": " + std::strerror(errno));
  struct stat about {};
  if (fstat(file_.fd(), &about) != 0 || !S_ISREG(about.st_mode))
    return Status(Code::io_error, path + " is not a file: remove it");
  return Status::okay();
}

// Returns whether the name still leads to this file: the directory's owner may have replaced it.
bool GlobalLock::in_force(const Directory& directory) const {
  struct stat ours {
  }, named{};
  return fstat(file_.fd(), &ours) == 0 &&
         fstatat(directory.fd(), kLockName, &named, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_ino == named.st_ino;
}

bool GlobalLock::try_now(const Directory& directory) {
  if (flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) return false;
  step("lock taken");
  if (in_force(directory)) return true;
  file_.close();
  return false;
}

bool GlobalLock::override_it(const Directory& directory, LockWatch& watch) {
  struct stat about {};
  if (!in_force(directory) || fstat(file_.fd(), &about) != 0) return false;
  watch.look(about);
  if (!watch.only_kept()) return false;
  overridden_ = &watch;
  return true;
}

Status GlobalLock::lock(const Directory& directory, std::chrono::milliseconds limit, LockWatch* watch) {
  const auto begin = Clock::now();
  const auto until = begin + limit;
  sigset_t all;
  sigfillset(&all);
  for (int attempt = 0;; ++attempt) {
    if (!file_.valid()) IK_RETURN_IF_ERROR(open(directory));
    pthread_sigmask(SIG_BLOCK, &all, &signals_);
    // Read before the lock is taken, because this thread may sleep before it reads the clock.
    since_ = Clock::now();
    const bool suspicious = watch != nullptr && attempt > kQuickAttempts && since_ - begin > kSuspicious;
    if (try_now(directory) || (file_.valid() && suspicious && override_it(directory, *watch))) {
      held_ = true;
      step("locked");
      return Status::okay();
    }
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
    if (since_ >= until) {
      struct stat about {};
      const bool known = file_.valid() && fstat(file_.fd(), &about) == 0;
      const std::string holder = known ? holders_of_lock(about) : "";
      file_.close();
      return Status(Code::busy, directory.path() + "/" + kLockName + " has been locked for " +
                                    std::to_string(limit.count()) + " ms" +
                                    (holder.empty() ? "" : " by " + holder) +
                                    "; it is held for less than one: has that process been stopped?");
    }
    // Polled, because flock() has no time limit. The lock is held too shortly for the polling to matter.
    if (attempt < kQuickAttempts)
      sched_yield();
    else
      std::this_thread::sleep_for(pause_after(attempt - kQuickAttempts));
  }
}

bool GlobalLock::exclusive() const {
  return held_ && overridden_ == nullptr && Clock::now() - since_ < kOverslept;
}

// If the lock can be taken now, no process is in the middle of a grant. Otherwise the holders must be the
// overridden ones.
bool GlobalLock::undisturbed(const Directory& directory) {
  if (!in_force(directory)) return false;
  if (overridden_ == nullptr || flock(file_.fd(), LOCK_EX | LOCK_NB) == 0) return true;
  struct stat about {};
  return fstat(file_.fd(), &about) == 0 && overridden_->unchanged(about);
}

void GlobalLock::unlock() {
  if (!held_) return;
  held_ = false;
  overridden_ = nullptr;
  // close() alone is not enough: a child that is being forked may have a copy of the
  // descriptor at this moment.
  flock(file_.fd(), LOCK_UN);
  file_.close();
  step("unlocked");
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

}  // namespace innkeeper::lease
