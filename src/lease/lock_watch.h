// Who holds the global lock, from the kernel's list of locks, and whether he has taken it only to keep it.
//
// Any user can open the lock's file and keep it locked. Who uses the lock has it for some hundred
// microseconds, in which his thread computes or waits for a disk. So a process of which every thread
// sleeps or has ended, look after look for two seconds, does not use it. Nor does who shares it (LOCK_SH),
// since this program never does. Root's processes that have it alone never count as such, since `setup`
// moves the folder under the lock; nor do stopped and frozen ones, which may go on in the middle of a
// grant.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "lease/record.h"

namespace innkeeper::lease {

// "pid 123 (python3) of alice, pid 4 (cat) of bob"; empty: nobody has it, or it cannot be seen. Slow (names
// of users).
std::string holders_of_lock(const struct stat& file);

// One thread's. It may be kept between attempts to take the lock.
class LockWatch {
 public:
  // Looks at all who hold the lock on this file, but no more often than is useful. Reads /proc.
  void look(const struct stat& file);
  // All who held it at the last look only keep it.
  bool only_kept() const;
  // Warns of them, once. Slow, as above.
  void tell(const std::string& lock_path);
  // Those of whom that was said, and nobody else, hold it at this moment.
  bool unchanged(const struct stat& file) const;

 private:
  using Clock = std::chrono::steady_clock;

  std::set<ProcessKey> holders_;  // as long as they have been asleep
  int64_t sharing_ = 0;           // one of those who have it by LOCK_SH
  Clock::time_point since_;
  Clock::time_point last_;
  int looks_ = 0;
  bool told_ = false;
};

}  // namespace innkeeper::lease
