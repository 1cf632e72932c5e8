// Which processes hold the global lock, and whether they only keep it without using it.
//
// Any user can open the lock's file and keep it locked. A process that uses the lock holds it for some
// hundred microseconds, in which its thread computes or waits for a disk. So a process whose threads all
// sleep or have ended, in look after look for two seconds, does not use the lock. A process that shares the
// lock (LOCK_SH) does not use it either, because this program never shares it. Processes of root that hold it
// alone are never counted so, since `setup` moves the folder under the lock. Stopped and frozen processes are
// not either, since they may go on in the middle of a grant.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "lease/record.h"

namespace innkeeper::lease {

// "pid 123 (python3) of alice, pid 4 (cat) of bob"; empty: no process holds it, or none can be seen. Slow:
// looks up user names.
std::string holders_of_lock(const struct stat& file);

// Used by one thread. It may be kept between attempts to take the lock.
class LockWatch {
 public:
  // Records who holds the lock on this file, at most every 50 ms. Reads /proc.
  void look(const struct stat& file);
  // All holders at the last look only keep the lock.
  bool only_kept() const;
  // Warns of these holders, once. Slow: looks up user names.
  void tell(const std::string& lock_path);
  // These holders, and no other process, hold the lock at this moment.
  bool unchanged(const struct stat& file) const;

 private:
  using Clock = std::chrono::steady_clock;

  std::set<ProcessKey> holders_;  // The holders since `since_`; empty while one of them runs.
  int64_t sharing_ = 0;           // The last process seen to hold it by LOCK_SH.
  Clock::time_point since_;
  Clock::time_point last_;
  int looks_ = 0;
  bool told_ = false;
};

}  // namespace innkeeper::lease
