// BackgroundWorker runs its jobs in order on one thread; jobs left when the object or the process ends.
#include "base/background_worker.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>
#include <vector>

namespace innkeeper {
namespace {

TEST(BackgroundWorker, RunsJobsInOrderOnAThreadOfItsOwn) {
  std::vector<int> done;
  std::vector<std::thread::id> threads;
  std::promise<void> last;
  BackgroundWorker worker;
  for (int i = 0; i < 100; ++i) {
    worker.run([&, i] {
      done.push_back(i);
      threads.push_back(std::this_thread::get_id());
      if (i == 99) last.set_value();
    });
  }
  last.get_future().get();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
  for (const std::thread::id& each : threads) EXPECT_EQ(each, threads.front());
  EXPECT_NE(threads.front(), std::this_thread::get_id());
}

TEST(BackgroundWorker, TakesNoSignalOfThePrograms) {
  BackgroundWorker worker;
  std::promise<int> blocked;
  worker.run([&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked.set_value(sigismember(&mask, SIGINT));
  });
  EXPECT_EQ(blocked.get_future().get(), 1);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);
}

TEST(BackgroundWorker, WaitsForTheJobThatIsUnderWayAndLeavesTheRest) {
  std::promise<void> begun;
  std::promise<void> go_on;
  bool first = false;
  bool second = false;
  std::thread releases;
  {
    BackgroundWorker worker;
    worker.run([&] {
      begun.set_value();
      go_on.get_future().get();
      first = true;
    });
    worker.run([&] { second = true; });
    begun.get_future().get();
    releases = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      go_on.set_value();
    });
  }
  releases.join();
  EXPECT_TRUE(first);
  EXPECT_FALSE(second);
}

TEST(BackgroundWorker, ManyThreadsGiveJobs) {
  std::atomic<int> done{0};
  {
    BackgroundWorker worker;
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i)
      threads.emplace_back([&] {
        for (int job = 0; job < 500; ++job) worker.run([&] { ++done; });
      });
    for (std::thread& thread : threads) thread.join();
    std::promise<void> last;
    worker.run([&] { last.set_value(); });
    last.get_future().get();
  }
  EXPECT_EQ(done, 16 * 500);
}

TEST(BackgroundWorker, AChildOfForkMayDestroyIt) {
  auto worker = std::make_unique<BackgroundWorker>();
  std::promise<void> begun;
  std::promise<void> go_on;
  worker->run([&] {
    begun.set_value();
    go_on.get_future().get();
  });
  begun.get_future().get();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    worker.reset();
    _exit(0);
  }
  go_on.set_value();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The child lacks the thread that may hold the mutex.
TEST(BackgroundWorker, ChildrenOfAForkAtAnyMomentMayDestroyIt) {
  for (int round = 0; round < 100; ++round) {
    auto worker = std::make_unique<BackgroundWorker>();
    std::atomic<bool> stop{false};
    std::thread gives([&] {
      while (!stop) worker->run([] {});
    });
    std::this_thread::sleep_for(std::chrono::microseconds(10 * round));
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      worker.reset();
      _exit(0);
    }
    stop = true;
    gives.join();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "round " << round;
  }
}

}  // namespace
}  // namespace innkeeper
