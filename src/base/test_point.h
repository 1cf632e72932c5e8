// Named places in the code where a test may let another thread go first. A rare order of events becomes
// common, and a failing one can be repeated. They are only off the fast paths, and never where a lock is held
// that other threads need to go on.
//
// Without a test it costs one relaxed load.
#pragma once

#include <atomic>

namespace innkeeper {

using TestPoint = void (*)(const char* name);

// Set by a test while no thread runs; null otherwise.
inline std::atomic<TestPoint> test_point{nullptr};

inline bool test_points_on() { return test_point.load(std::memory_order_relaxed) != nullptr; }

inline void reach(const char* name) {
  if (const TestPoint hook = test_point.load(std::memory_order_relaxed); hook != nullptr) [[unlikely]]
    hook(name);
}

}  // namespace innkeeper
