// The calling thread's own share of pins, moves and evictions, by which the engine tells them from other
// threads'. A process has one engine at work: a thread must not use a second one inside an operator of the
// first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/thread_life.h"
#include "base/types.h"

namespace innkeeper {

struct ThreadState {
  ThreadState() = default;
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;
  ~ThreadState() {
    if (life != nullptr) life->over.store(true, std::memory_order_relaxed);
  }

  std::array<int, kMaxNodes> running{};        // Admissions of this thread, by node.
  std::array<int, kMaxNodes> moving{};         // Moves of this thread that take or free memory, by node.
  std::array<int64_t, kMaxNodes> unplanned{};  // Bytes evicted for this thread, since its planner heard.
  int64_t strange = 0;                         // Operators without a tracker, beside tracked programs.
  std::array<double, kMaxNodes>
      recomputed_seconds{};  // Seconds of recomputed kernels, since its planner heard.
  int recomputing = 0;       // Recorded calls that this thread follows (Recomputer).
  // Guarded by engine_mutex: blocks that this thread has marked as moving, and whether it waits for another
  // thread's change now (BlockTable::may_await).
  size_t marks = 0;
  bool waits = false;
  std::shared_ptr<ThreadLife> life;  // Set with its first tracker (program_trackers.h).
};

inline ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

}  // namespace innkeeper
