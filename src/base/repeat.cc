#include "base/repeat.h"

#include <unistd.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/thread_annotations.h"

namespace innkeeper {

struct Repeat::State {
  State(std::function<void()> body_, std::chrono::microseconds every_)
      : body(std::move(body_)), every(every_) {}

  void run() {
    MutexLock lock(mutex);
    while (!stop) {
      lock.unlock();
      body();
      lock.lock();
      const auto next = std::chrono::steady_clock::now() + every;
      for (auto now = next - every; !stop && now < next; now = std::chrono::steady_clock::now())
        wake.wait_for(mutex, std::chrono::duration_cast<std::chrono::microseconds>(next - now));
    }
  }

  const std::function<void()> body;
  const std::chrono::microseconds every;
  const pid_t owner = getpid();
  Mutex mutex;
  CondVar wake;
  bool stop IK_GUARDED_BY(mutex) = false;
  std::thread thread;
};

Repeat::Repeat(std::function<void()> body, std::chrono::microseconds every, const char* without)
    : state_(new State(std::move(body), every)) {
  try {
    state_->thread = quiet_thread([state = state_] { state->run(); });
  } catch (const std::system_error& error) {
    log(LogLevel::info, std::string(without) + ": no thread: " + error.what());
  }
}

Repeat::~Repeat() {
  // A child of fork() has the state without the thread, and its mutex in an unknown state:
  // neither can be ended.
  if (state_->owner != getpid()) return;
  {
    const MutexLock lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
  delete state_;
}

}  // namespace innkeeper
