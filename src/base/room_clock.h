// From when on there is room, in virtual time: memory that is freed is free once its users are through, which
// may be later than the host's free(), and its next user starts no earlier.
//
// Bytes are taken for what they are worth, wherever they lie, as on a card whose pages are mapped again. What
// is in use never exceeds the limit, so there is always an entry to take.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>

namespace innkeeper {

class RoomClock {
 public:
  explicit RoomClock(int64_t limit) : limit_(limit) { free_[0] = limit; }

  // `bytes` are free from `time` on.
  void give(double time, int64_t bytes);
  // Takes the bytes that are free for longest. Returns from when on all of them are.
  double take_oldest(int64_t bytes);
  // Takes the bytes that became free last, but no later than `now`; then the next to be free after.
  double take_newest(int64_t bytes, double now);
  // Less room: the bytes that are free for longest go. More: they are free from `now` on.
  void set_limit(int64_t limit, double now);

 private:
  using Entry = std::map<double, int64_t>::iterator;
  int64_t take(Entry entry, int64_t bytes);

  int64_t limit_;
  int64_t owed_ = 0;  // by the limit: taken from what is given next
  std::map<double, int64_t> free_;
};

}  // namespace innkeeper
