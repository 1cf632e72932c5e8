// A move: one block's bytes on their way into a node (docs/design/moves.md). No thread owns it; any thread
// may take its next step (Mover::advance).
//
//     wanted    it asks for memory, and holds none
//     reserved  it has memory, and waits for its link
//     copying   copies of its bytes are on a queue, perhaps not all of them yet
//     landed    the bytes have arrived; or they are not needed any more, and are dropped once they arrive
//     failed    the block is as it was before; `status` says why
//     cancelled before any copy
//
// A block has at most one move into a node: the replica there is arriving, and has it (copies.h).
//
// Thread safety: guarded by engine_mutex, or by the block's `moving` flag while a thread works on the block
// without it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "base/status.h"
#include "device/device_api.h"
#include "residency/block/reservation.h"

namespace innkeeper {

class Block;

// The order of moves on a link. An operator waits for a demand; a planned move is needed soon; a hint helps
// if there is time.
enum class Priority : uint8_t { demand, planned, hint };
inline constexpr size_t kPriorities = 3;

enum class MoveState : uint8_t { wanted, reserved, copying, landed, failed, cancelled };
inline constexpr size_t kMoveStates = 6;

// kMaySucceed[state][next]: every step that a move takes is checked against this table.
// clang-format off
inline constexpr std::array<std::array<bool, kMoveStates>, kMoveStates> kMaySucceed = {{
    //               wanted reserved copying landed failed cancelled
    /* wanted    */ {{false, true,    false,  false, true,  true}},
    /* reserved  */ {{false, false,   true,   false, true,  true}},
    /* copying   */ {{false, false,   false,  true,  true,  false}},
    /* landed    */ {{false, false,   false,  false, false, false}},
    /* failed    */ {{false, false,   false,  false, false, false}},
    /* cancelled */ {{false, false,   false,  false, false, false}},
}};
// clang-format on

const char* to_string(MoveState state);

// How a move is made: how far it may go to free memory, and its place on the link.
struct MoveIntent {
  Reserve mode;
  Priority priority;
  Queue first = Queue::compute;  // The queue that first writes the memory of an unwritten block.
};
// An operator's operand; a victim that must go.
inline constexpr MoveIntent kDemand{Reserve::may_evict, Priority::demand};
inline constexpr MoveIntent kPlanned{Reserve::free_only, Priority::planned};
inline constexpr MoveIntent kHint{Reserve::may_evict, Priority::hint};

class Move {
 public:
  Move(Block& what, NodeId source, NodeId destination, Priority whose)
      : block(&what), from(source), to(destination), priority(whose) {}

  MoveState state() const { return state_; }
  void become(MoveState next) {
    IK_CHECK(kMaySucceed[static_cast<size_t>(state_)][static_cast<size_t>(next)],
             std::string("a move that is ") + to_string(state_) + " cannot be " + to_string(next));
    state_ = next;
  }
  bool is_over() const { return state_ >= MoveState::landed; }

  Block* const block;  // Valid until the move is over.
  NodeId from;
  const NodeId to;
  Priority priority;
  bool leaves = false;      // The source replica leaves afterwards.
  bool watched = false;     // A thread must see it land.
  bool landing = false;     // A thread finishes it; its source may leave until that thread is done.
  NodeId onward = kNoNode;  // Next hop behind `to`, if there is one.
  Reservation reservation;
  Bytes begun{0};  // Bytes whose copies are on a queue.
  Event last;      // The last of these copies.
  Status status;   // Why it failed.

 private:
  MoveState state_ = MoveState::wanted;
};
using MovePtr = std::shared_ptr<Move>;

}  // namespace innkeeper
