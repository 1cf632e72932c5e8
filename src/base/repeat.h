// Runs a function periodically on a thread of its own, which receives none of the program's signals.
//
// The thread ends with the object. A child of fork() has the object without the thread, and may destroy it.
#pragma once

#include <chrono>
#include <functional>

namespace innkeeper {

class Repeat {
 public:
  // Runs `body` at once, and then with the period `every`. Requires: the objects that `body` uses outlive
  // this one. If no thread can be created, it never runs, and `without` is logged.
  Repeat(std::function<void()> body, std::chrono::microseconds every, const char* without);
  // Waits for a `body` in progress.
  ~Repeat();
  Repeat(const Repeat&) = delete;
  Repeat& operator=(const Repeat&) = delete;

 private:
  struct State;
  State* const state_;
};

}  // namespace innkeeper
