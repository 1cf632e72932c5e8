// Free space in virtual time: freed memory becomes free when its users end, which may be later than the
// host's free(). Its next user starts no earlier.
//
// Bytes are interchangeable, wherever they lie, as on a GPU whose pages are remapped. The bytes in use never
// exceed the limit, so there is always an entry to take.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>

namespace innkeeper {

class FreeSpaceClock {
 public:
  explicit FreeSpaceClock(int64_t limit) : limit_(limit) { free_[0] = limit; }

  // Adds `bytes` that become free at `time`.
  void give(double time, int64_t bytes);
  // Takes the bytes that have been free longest. Returns the time from which all of them are free.
  double take_oldest(int64_t bytes);
  // Takes the bytes that became free last, but no later than `now`; then the next to become free after it.
  double take_newest(int64_t bytes, double now);
  // Sets the limit. If it shrinks, the bytes that have been free longest are removed; if it grows, the new
  // bytes are free from `now`.
  void set_limit(int64_t limit, double now);

 private:
  using Entry = std::map<double, int64_t>::iterator;
  int64_t take(Entry entry, int64_t bytes);

  int64_t limit_;
  // Bytes by which the limit shrank beyond the free ones: taken from the next bytes given.
  int64_t owed_ = 0;
  std::map<double, int64_t> free_;
};

}  // namespace innkeeper
