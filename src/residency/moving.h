// What a thread does to blocks without the engine's lock, as scopes: whatever happens inside, nothing goes on
// moving for ever.
#pragma once

#include "residency/engine.h"
#include "residency/thread_state.h"

namespace innkeeper {

// Counts a move at a node for a scope: memory is charged there that is not listed yet, or about to be given
// back. Others who need room wait for it instead of giving up; while its own thread waits for room there, it
// does not count (Engine::wait_for_room), so that two never wait for each other.
class Engine::Moving {
 public:
  Moving(Engine& engine, Node& node) : engine_(engine), node_(node) { add(1); }
  ~Moving() { add(-1); }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;

 private:
  void add(int change) {
    MutexLock lock(engine_.mutex_);
    node_.moving += change;
    thread_state().moving[index_of(node_.id)] += change;
  }

  Engine& engine_;
  Node& node_;
};

// Marks a block as moving and lets go of the lock for a scope; takes it again when the move ends.
class IK_SCOPED_CAPABILITY Engine::MoveScope {
 public:
  MoveScope(Engine& engine, Block& block) IK_RELEASE(engine.mutex_) : engine_(engine), block_(block) {
    engine_.begin_move(block_);
    engine_.mutex_.unlock();
  }
  ~MoveScope() IK_RELEASE() {
    engine_.mutex_.lock();
    engine_.end_move(block_);
  }
  MoveScope(const MoveScope&) = delete;
  MoveScope& operator=(const MoveScope&) = delete;

 private:
  Engine& engine_;
  Block& block_;
};

// Marks a move as landing for a scope that begins and ends with the lock held.
class Landing {
 public:
  explicit Landing(Move& move) : move_(move) { move_.landing = true; }
  ~Landing() { move_.landing = false; }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

 private:
  Move& move_;
};

}  // namespace innkeeper
