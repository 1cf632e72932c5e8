#include "base/free_space_clock.h"

#include <algorithm>
#include <iterator>

namespace innkeeper {

void FreeSpaceClock::give(double time, int64_t bytes) {
  const int64_t kept = std::min(owed_, bytes);
  owed_ -= kept;
  if (bytes > kept) free_[time] += bytes - kept;
}

int64_t FreeSpaceClock::take(Entry entry, int64_t bytes) {
  const int64_t taken = std::min(entry->second, bytes);
  entry->second -= taken;
  if (entry->second == 0) free_.erase(entry);
  return taken;
}

double FreeSpaceClock::take_oldest(int64_t bytes) {
  double since = 0;
  while (bytes > 0 && !free_.empty()) {
    since = free_.begin()->first;
    bytes -= take(free_.begin(), bytes);
  }
  owed_ += bytes;
  return since;
}

double FreeSpaceClock::take_newest(int64_t bytes, double now) {
  while (bytes > 0) {
    const Entry after = free_.upper_bound(now);
    if (after == free_.begin()) break;
    bytes -= take(std::prev(after), bytes);
  }
  return bytes == 0 ? 0 : take_oldest(bytes);
}

void FreeSpaceClock::set_limit(int64_t limit, double now) {
  const int64_t more = limit - limit_;
  limit_ = limit;
  if (more > 0) {
    give(now, more);
  } else {
    (void)take_oldest(-more);
  }
}

}  // namespace innkeeper
