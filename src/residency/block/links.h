// The links between nodes, and what waits for them (docs/design/moves.md).
//
// A link is one direction of one node's copies. Few copies are in flight on it at once, so that a demand
// passes those that are planned, and these pass hints: what waits has room already, and no copy yet. Demands
// do not wait. Large blocks are copied in parts, for the same reason.
//
// Thread safety: none; engine_mutex guards it. Asking whether a copy is done is all that is asked of a
// device.
#pragma once

#include <array>
#include <deque>
#include <functional>

#include "residency/block/move.h"

namespace innkeeper {

struct LinkLimits {
  // A part is copied in some milliseconds, which is many times what starting it takes.
  Bytes part = MiB(64);
  // So many copies, or so many bytes of them if they are small, hide what starting the next one takes.
  size_t few = 2;
  Bytes enough = MiB(4);
};

class Link {
 public:
  // A copy was put on the link's queue.
  void began(Event copy, Bytes size);
  // Whether another copy may be, for which no operator waits. Forgets those that are done.
  bool is_free(const LinkLimits& limits);

  // `move` is reserved, and its copies wait for the link.
  void wait(MovePtr move) { waiting_[static_cast<size_t>(move->priority)].push_back(std::move(move)); }
  // The first that may begin or go on; the caller puts it back if it is not through. Those that are over are
  // forgotten. Null if none waits.
  MovePtr take();
  void put_back(MovePtr move) { waiting_[static_cast<size_t>(move->priority)].push_front(std::move(move)); }
  // The last that asked, of the least priority, which has no copy yet; it waits no longer. Null if there is
  // none.
  MovePtr take_last();
  // Removes and returns the last planned move without a copy for which `which` is true. Null if there is
  // none.
  MovePtr take_last_planned(const std::function<bool(const Move&)>& which);
  size_t waiting() const;

 private:
  template <class Which>
  static MovePtr take_last_of(std::deque<MovePtr>& queue, const Which& which);
  struct Flight {
    Event copy;
    Bytes size;
  };
  // Of the copies in flight: the others are on the queue before them.
  static constexpr size_t kRemembered = 8;

  std::deque<Flight> in_flight_;
  std::array<std::deque<MovePtr>, kPriorities> waiting_;
};

}  // namespace innkeeper
