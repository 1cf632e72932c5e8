// A background thread that runs jobs one after the other, concurrently with the program. It starts with the
// first job, and no signal of the program is delivered on it.
//
// The thread ends with the object. A child of fork() has the object without the thread, and may destroy it.
//
// Thread safety: all methods.
#pragma once

#include <functional>

namespace innkeeper {

class BackgroundWorker {
 public:
  BackgroundWorker();
  // Blocks: until the current job ends. Jobs that have not begun are discarded.
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // Requires: the job's captures stay valid until the job is done or this object is destroyed. If the system
  // refuses a thread, the caller runs the job.
  void run(std::function<void()> job);

 private:
  struct State;
  State* const state_;
};

}  // namespace innkeeper
