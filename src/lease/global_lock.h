// The one lock under which leases are granted: flock on the directory's alloc.lock, held for some
// hundred microseconds.
//
// All processes open that file read-only, so that no process needs to own it, and it is never removed. Each
// acquisition opens it again. Threads of one process therefore exclude each other too, and a replaced file is
// noticed. This thread blocks its signals while it holds the lock, so that Ctrl-Z or a handler does not stop
// all callers. No slow work is done under it: no NVML, no CUDA, no user name, no /proc.
//
// Any user can hold the file locked for ever. A caller with a watch overrides a process that only keeps the
// lock (lock_watch.h). The claim that this caller publishes counts once it has found that no other process
// was granted bytes meanwhile (exclusive(), undisturbed()). In all other cases the caller is told after its
// limit which process holds the lock: a denial, never a wrong grant.
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

  // Takes the lock. Blocks: up to `limit`. Fails with Code::busy and the name of the holder. With a watch, a
  // process that only keeps the lock is overridden: held() is true then, and exclusive() is false. Requires:
  // not held. The same thread must call unlock().
  Status lock(const Directory& directory, std::chrono::milliseconds limit, LockWatch* watch = nullptr);
  void unlock();
  // Returns whether this caller may publish.
  bool held() const { return held_; }
  // Returns whether no other process can have published since lock(). Also false if this caller took so long
  // that others may have overridden it.
  bool exclusive() const;
  // Returns true if no process is in the middle of a grant, so that each grant that began before is published
  // by now. Requires: the caller has published.
  bool undisturbed(const Directory& directory);

 private:
  using Clock = std::chrono::steady_clock;
  Status open(const Directory& directory);
  bool in_force(const Directory& directory) const;
  // Takes the lock if it is free. False: it is held, or the file was closed because its name
  // leads to another one.
  bool try_now(const Directory& directory);
  bool override_it(const Directory& directory, LockWatch& watch);

  OpenFile file_;
  sigset_t signals_ = {};
  bool held_ = false;
  const LockWatch* overridden_ = nullptr;  // The watch that saw the holder; null: no holder was overridden.
  Clock::time_point since_;                // A time before the lock was taken.
};

}  // namespace innkeeper::lease
