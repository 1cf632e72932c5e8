#include "base/background_worker.h"

#include <unistd.h>

#include <deque>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/thread_annotations.h"

namespace innkeeper {

struct BackgroundWorker::State {
  void do_jobs() {
    MutexLock lock(mutex);
    while (!stop) {
      if (jobs.empty()) {
        wake.wait(mutex);
        continue;
      }
      const std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  const pid_t owner = getpid();
  Mutex mutex;
  CondVar wake;
  bool stop IK_GUARDED_BY(mutex) = false;
  std::deque<std::function<void()>> jobs IK_GUARDED_BY(mutex);
  std::thread thread IK_GUARDED_BY(mutex);
};

BackgroundWorker::BackgroundWorker() : state_(new State) {}

BackgroundWorker::~BackgroundWorker() {
  // A child of fork() has the state without the thread, and its mutex in an unknown state:
  // neither can be ended.
  if (state_->owner != getpid()) return;
  std::thread thread;
  {
    const MutexLock lock(state_->mutex);
    state_->stop = true;
    thread = std::move(state_->thread);
  }
  state_->wake.notify_all();
  if (thread.joinable()) thread.join();
  delete state_;
}

void BackgroundWorker::run(std::function<void()> job) {
  MutexLock lock(state_->mutex);
  if (!state_->thread.joinable()) {
    try {
      state_->thread = quiet_thread([state = state_] { state->do_jobs(); });
    } catch (const std::system_error& error) {
      lock.unlock();
      log(LogLevel::info, std::string("no background thread: ") + error.what());
      return job();
    }
  }
  state_->jobs.push_back(std::move(job));
  state_->wake.notify_all();
}

}  // namespace innkeeper
