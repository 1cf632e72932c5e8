// Runs jobs concurrently with the program, one after the other, on a thread of its own. The thread starts
// with the first job and receives none of the program's signals.
//
// The thread ends with the object. A child of fork() has the object without the thread, and may destroy it.
//
// Thread safety: all methods.
#pragma once

#include <functional>

namespace innkeeper {

class Aside {
 public:
  Aside();
  // Waits for the job in progress. Jobs that have not begun are dropped.
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // Requires: the objects that the job uses live until it is done, or this object is gone. If no thread can
  // be created, the caller runs the job.
  void run(std::function<void()> job);

 private:
  struct State;
  State* const state_;
};

}  // namespace innkeeper
