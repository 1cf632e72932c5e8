#include "lease/ticker.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "base/thread_annotations.h"

namespace innkeeper::lease {

struct Ticker::State {
  explicit State(int place) : fd(place) {}

  void run() {
    MutexLock lock(mutex);
    while (!stop) {
      futimens(fd, nullptr);
      wake.wait_for(mutex, std::chrono::seconds(1));
    }
  }

  const int fd;
  const pid_t owner = getpid();
  Mutex mutex;
  CondVar wake;
  bool stop IK_GUARDED_BY(mutex) = false;
  std::thread thread;
};

Ticker::Ticker(int fd) : state_(new State(fd)) {
  // The program's signals are for the program's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->thread = std::thread([state = state_] { state->run(); });
  } catch (const std::system_error&) {
    log(LogLevel::debug, "no thread to keep a place in the line");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Ticker::~Ticker() {
  // A child of fork() has the state without the thread, its mutex in whatever state it was.
  if (state_->owner != getpid()) return;
  {
    const MutexLock lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
  delete state_;
}

}  // namespace innkeeper::lease
