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

// Between two looks at a lock that is held. Longer only after a second: those who ask in between must not be
// served for ever before who waits.
std::chrono::microseconds pause_after(int attempt) {
  return std::chrono::microseconds(attempt < 7 ? 20 << attempt : attempt < 1000 ? 1000 : 4000);
}

constexpr int kQuickAttempts = 4;
// A lock that has been held for longer than this is looked at by the watch.
constexpr std::chrono::milliseconds kSuspicious{200};
// Less than it takes to be overridden.
constexpr std::chrono::milliseconds kOverslept{1000};
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

// The name leads to this file still: the folder's owner may have replaced it.
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
    since_ = Clock::now();  // not later: this thread may sleep before it reads the clock
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
    // Polled, since flock() cannot wait for a limited time. It is held too shortly for that to matter.
    if (attempt < kQuickAttempts)
      sched_yield();
    else
      std::this_thread::sleep_for(pause_after(attempt - kQuickAttempts));
  }
}

bool GlobalLock::exclusive() const {
  return held_ && overridden_ == nullptr && Clock::now() - since_ < kOverslept;
}

// If the lock can be taken now, no process is in the middle of a grant. Else the holders must be the
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
  // Not by close() alone: a child that is being forked may have a copy at this moment.
  flock(file_.fd(), LOCK_UN);
  file_.close();
  step("unlocked");
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

}  // namespace innkeeper::lease
