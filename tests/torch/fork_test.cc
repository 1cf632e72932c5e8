// Locks that a child of fork() needs are free there, even if a thread of the parent held them (fork.h).
#include "torch/process/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace innkeeper::torch_layer {
namespace {

TEST(Fork, ALockThatAnotherThreadHoldsAlmostAlwaysIsFreeInTheChild) {
  static Mutex mutex;  // Static, because a lock registered for fork() is never removed.
  take_at_fork(mutex);
  std::atomic<bool> stop{false};
  std::thread holder([&] {
    while (!stop) {
      MutexLock lock(mutex);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      { MutexLock lock(mutex); }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  }
  stop = true;
  holder.join();
}

}  // namespace
}  // namespace innkeeper::torch_layer
