// Does something again and again from a thread of its own, on which no signal of the program's is delivered.
//
// The thread ends with the object. A child of fork() has the object without the thread, and may destroy it.
#pragma once

#include <chrono>
#include <functional>

namespace innkeeper {

class Repeat {
 public:
  // At once, and then `every` so often. What `body` uses must outlive this. Without threads to be had it does
  // nothing, and logs `without`.
  Repeat(std::function<void()> body, std::chrono::microseconds every, const char* without);
  // Waits for a `body` that is under way.
  ~Repeat();
  Repeat(const Repeat&) = delete;
  Repeat& operator=(const Repeat&) = delete;

 private:
  struct State;
  State* const state_;
};

}  // namespace innkeeper
