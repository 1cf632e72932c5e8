// The one lock under which leases are given: flock on the folder's alloc.lock, held for some hundred
// microseconds.
//
// Everybody opens that file read-only, so that nobody needs to own it, and nobody ever removes it. Each
// taking opens it anew: threads of one process exclude each other too, and a file that its owner replaced is
// noticed. Signals are held back meanwhile in this thread, so that Ctrl-Z or a handler does not stop
// everybody. Nothing slow is done under it: no NVML, no CUDA, no name of a user, no /proc.
//
// Any user can hold the file locked for ever. Who only keeps it (lock_watch.h) is overridden by those who ask
// with a watch: what they then publish counts once nobody was found to have been in between (exclusive(),
// undisturbed()). Else each caller is told after its limit who holds it: a denial, never a wrong grant.
#pragma once

#include <csignal>

#include <chrono>
#include <string>

#include "base/status.h"
#include "lease/directory.h"
#include "lease/lock_watch.h"
#include "lease/open_file.h"

namespace innkeeper::lease {

class GlobalLock {
 public:
  GlobalLock() = default;
  ~GlobalLock() { unlock(); }
  GlobalLock(const GlobalLock&) = delete;
  GlobalLock& operator=(const GlobalLock&) = delete;

  // Blocks: up to `limit`. Fails with Code::busy and who holds it. With a watch it may be left to somebody
  // who only keeps it: held() is true then, and exclusive() is not.
  // Requires: not held. The same thread takes and gives back.
  Status lock(const Directory& directory, std::chrono::milliseconds limit, LockWatch* watch = nullptr);
  void unlock();
  // This caller may publish.
  bool held() const { return held_; }
  // Nobody else can have published since. False also where this caller took so long that others may have
  // taken it for one who only keeps the lock.
  bool exclusive() const;
  // After publishing without exclusive(): nobody is in the middle of a grant. Whoever was there since this
  // lock was taken has published by now.
  bool undisturbed(const Directory& directory);

 private:
  using Clock = std::chrono::steady_clock;
  Status open(const Directory& directory);
  bool in_force(const Directory& directory) const;
  // Takes it if nobody has it. False: somebody has, or the file was closed because its name leads to another.
  bool try_now(const Directory& directory);
  bool override_it(const Directory& directory, LockWatch& watch);

  OpenFile file_;
  sigset_t signals_ = {};
  bool held_ = false;
  const LockWatch* overridden_ = nullptr;  // by what it was seen that its holder only keeps it
  Clock::time_point since_;
};

}  // namespace innkeeper::lease
