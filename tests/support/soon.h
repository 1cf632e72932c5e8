// Waiting in a test for what another thread or process does.
#pragma once

#include <chrono>
#include <thread>

namespace innkeeper::test {

// Whether it becomes true in time. A machine that is busy with much else may need long for what takes a
// moment.
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
