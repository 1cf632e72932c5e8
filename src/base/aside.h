// Does jobs concurrently with the program, one after the other, on a thread of its own that begins with the
// first and on which no signal of the program's is delivered.
//
// It ends with the object. A child of fork() has the object without the thread, and may destroy it.
//
// Thread safety: all methods.
#pragma once

#include <functional>

namespace innkeeper {

class Aside {
 public:
  Aside();
  // Waits for the job that is under way. Those that have not begun are not done.
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // What the job uses must live until it is done, or this object is gone. Where no thread can be had the
  // caller does it.
  void run(std::function<void()> job);

 private:
  struct State;
  State* const state_;
};

}  // namespace innkeeper
