// Waits in a test for another thread or process.
#pragma once

#include <chrono>
#include <thread>

namespace innkeeper::test {

// Whether the condition becomes true in time. On a busy machine a short action may take long.
template <class Condition>
bool soon(const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(45);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace innkeeper::test
