// Named places in the code where a test may let another thread go first, so that an order of events that is
// rare becomes common, and one that was bad can be repeated. Off the fast paths only, and never while a lock
// is held that other threads need to go on.
//
// Without a test it costs one relaxed load.
#pragma once

#include <atomic>

namespace innkeeper {

using TestPoint = void (*)(const char* name);

// Set by a test while nothing runs; null otherwise.
inline std::atomic<TestPoint> test_point{nullptr};

inline bool test_points_on() { return test_point.load(std::memory_order_relaxed) != nullptr; }

inline void reach(const char* name) {
  if (const TestPoint hook = test_point.load(std::memory_order_relaxed); hook != nullptr) [[unlikely]]
    hook(name);
}

}  // namespace innkeeper
