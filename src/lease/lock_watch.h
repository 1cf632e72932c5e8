// Finds the processes that hold the global lock, and whether they only keep it without using it.
//
// Any user can open the lock's file and keep it locked. A process that uses the lock holds it for some
// hundred microseconds, in which its thread computes or waits for a disk. Therefore a process whose threads
// all sleep or have ended, at every look for two seconds, does not use the lock. A process that shares the
// lock (LOCK_SH) does not use it either, because this program never shares it. Two kinds of processes never
// count as only keeping it. Processes of root that hold it exclusively may move the directory under the lock,
// as `setup` does. Stopped and frozen processes may continue in the middle of a grant.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "lease/record.h"

namespace innkeeper::lease {

// Returns text such as "pid 123 (python3) of alice, pid 4 (cat) of bob"; empty: no process holds the lock, or
// none can be seen. Slow: looks up user names.
std::string holders_of_lock(const struct stat& file);

// Thread safety: one thread uses it. It may be kept between attempts to take the lock.
class LockWatch {
 public:
  // Records the holders of the lock on this file, at most every 50 ms. Reads /proc.
  void look(const struct stat& file);
  // Returns whether all holders at the last look only keep the lock.
  bool only_kept() const;
  // Logs a warning about these holders, once. Slow: looks up user names.
  void tell(const std::string& lock_path);
  // Returns whether these holders, and no other process, hold the lock at this moment.
  bool unchanged(const struct stat& file) const;

 private:
  using Clock = std::chrono::steady_clock;

  std::set<ProcessKey> holders_;  // Holders since `since_`; empty while one of them runs.
  int64_t sharing_ = 0;           // Last process that was seen to hold the lock by LOCK_SH.
  Clock::time_point since_;
  Clock::time_point last_;
  int looks_ = 0;
  bool told_ = false;
};

}  // namespace innkeeper::lease
