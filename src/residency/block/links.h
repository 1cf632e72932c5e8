// The links between nodes, and the moves that wait for them (docs/design/moves.md).
//
// A link is one direction of one node's copies. Few copies are in flight on it at once, so that a demand
// passes planned moves, and these pass hints. For the same reason large blocks are copied in parts. A move
// that waits for the link has its memory promised or allocated, and bytes that are not on a queue yet. A
// demand starts without waiting.
//
// Thread safety: none; engine_mutex guards it. A link asks devices only whether a copy is done.
#pragma once

#include <array>
#include <deque>
#include <functional>

#include "residency/block/move.h"

namespace innkeeper {

struct LinkLimits {
  // Size of a part. Its copy takes some milliseconds, many times the cost of starting it.
  Bytes part = MiB(64);
  // Copies in flight, or their bytes if they are small, that hide the cost of starting the next one.
  size_t few = 2;
  Bytes enough = MiB(4);
};

class Link {
 public:
  // A copy was put on the link's queue.
  void began(Event copy, Bytes size);
  // Whether a copy for which no operator waits may start. Forgets copies that are done.
  bool is_free(const LinkLimits& limits);

  // Adds a move at the end of its priority's queue. Requires: it has bytes that are not on a queue yet.
  void wait(MovePtr move) { waiting_[static_cast<size_t>(move->priority)].push_back(std::move(move)); }
  // Removes and returns the first move of the highest priority, or null. The caller puts it back while it has
  // parts left. Forgets moves that are over.
  MovePtr take();
  void put_back(MovePtr move) { waiting_[static_cast<size_t>(move->priority)].push_front(std::move(move)); }
  // Removes and returns the last move without a copy, of the lowest priority that has one, or null.
  MovePtr take_last();
  // Removes and returns the last planned move without a copy for which `which` is true, or null.
  MovePtr take_last_planned(const std::function<bool(const Move&)>& which);
  size_t waiting() const;

 private:
  template <class Which>
  static MovePtr take_last_of(std::deque<MovePtr>& queue, const Which& which);
  struct Flight {
    Event copy;
    Bytes size;
  };
  // Copies in flight that are remembered; all others are before them on the queue.
  static constexpr size_t kRemembered = 8;

  std::deque<Flight> in_flight_;
  std::array<std::deque<MovePtr>, kPriorities> waiting_;
};

}  // namespace innkeeper
