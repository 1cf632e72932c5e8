// What the calling thread is doing inside the engine: used to tell its own pins and moves from others'.
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

  std::array<int, kMaxNodes> running{};        // OperatorScopes of this thread, by node
  std::array<int, kMaxNodes> moving{};         // moves of this thread that take or give room, by node
  std::array<int64_t, kMaxNodes> unplanned{};  // bytes that left for it, since its planner heard of them
  int64_t strange = 0;                         // Operators without a tracker, beside tracked programs.
  std::array<double, kMaxNodes>
      recomputed{};                  // seconds of kernels that recorded calls ran, since its planner heard
  int recomputing = 0;               // recorded calls that it follows (recompute.cc)
  std::shared_ptr<ThreadLife> life;  // Set with its first tracker (program_trackers.h).
};

inline ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

}  // namespace innkeeper
