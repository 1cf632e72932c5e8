// Counts a move at a node for a scope: memory is charged there that is not listed yet, or about to be given
// back. Others who need room wait for it instead of giving up; while its own thread waits for room there, it
// does not count (Engine::wait_for_room), so that two never wait for each other.
#pragma once

#include "residency/engine.h"
#include "residency/thread_state.h"

namespace innkeeper {

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

}  // namespace innkeeper
