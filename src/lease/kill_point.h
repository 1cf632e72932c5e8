// Named steps of the protocol at which a test may kill the process, to verify that a crash at any point is
// harmless. The hook runs inside the critical section: it must return at once or not at all.
//
// Without a test a step costs one relaxed load.
#pragma once

#include <atomic>

namespace innkeeper::lease {

using KillPoint = void (*)(const char* step);

// Set by a test before it starts threads; null otherwise.
inline std::atomic<KillPoint> kill_point{nullptr};

inline void step(const char* name) {
  if (const KillPoint hook = kill_point.load(std::memory_order_relaxed); hook != nullptr) [[unlikely]]
    hook(name);
}

}  // namespace innkeeper::lease
