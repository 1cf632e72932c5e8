// The one lock under which leases are given: flock on the folder's alloc.lock, held for some hundred
// microseconds.
//
// Everybody opens that file read-only, so that nobody needs to own it, and nobody ever removes it. Each
// taking opens it anew: threads of one process exclude each other too, and a file that its owner replaced is
// noticed. Signals are held back meanwhile in this thread, so that Ctrl-Z or a handler does not stop
// everybody. Nothing slow is done under it: no NVML, no CUDA, no name of a user, no /proc.
//
// Any user can hold the file locked for ever. Then nobody gets a lease, and each caller is told after its
// limit who does it: a denial, never a wrong grant.
#pragma once

#include <csignal>

#include <chrono>
#include <string>

#include "base/status.h"
#include "lease/directory.h"
#include "lease/open_file.h"

namespace innkeeper::lease {

class GlobalLock {
 public:
  GlobalLock() = default;
  ~GlobalLock() { unlock(); }
  GlobalLock(const GlobalLock&) = delete;
  GlobalLock& operator=(const GlobalLock&) = delete;

  // Blocks: up to `limit`. Fails with Code::busy and who holds it.
  // Requires: not held. The same thread takes and gives back.
  Status lock(const Directory& directory, std::chrono::milliseconds limit);
  void unlock();
  bool held() const { return held_; }

 private:
  Status open(const Directory& directory);

  OpenFile file_;
  sigset_t signals_ = {};
  bool held_ = false;
};

}  // namespace innkeeper::lease
