// Threads that run one at a time: at every point where another may overtake, a seed chooses the next thread.
//
// Points are the engine's (base/test_point.h) and all calls to a device (FaultPlan::set_watcher). So an order
// of events is a function of the seed, and a failing order can be run again. A thread that waits for another
// comes to the point "wait", where another thread always goes on. If all threads do nothing but wait, that is
// a deadlock.
//
// Thread safety: run() is called by one thread; point() by any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace innkeeper::test {

class Interleaving {
 public:
  // Sets the engine's test points; one at a time in a process.
  Interleaving(size_t lanes, uint64_t seed);
  ~Interleaving();
  Interleaving(const Interleaving&) = delete;
  Interleaving& operator=(const Interleaving&) = delete;

  // Runs work[i] on lane i's thread; returns when all are done.
  void run(std::vector<std::function<void()>> work);
  // Other lanes may overtake the calling lane here. Threads that are no lane pass.
  void point(bool waits = false);

 private:
  static constexpr size_t kNobody = SIZE_MAX;
  static constexpr int kPatience = 200'000;  // Consecutive waits of all lanes together.

  void live(size_t lane);
  size_t choose(size_t self, bool waits);

  std::mutex mutex_;
  std::vector<std::unique_ptr<std::condition_variable>> wake_;
  std::condition_variable done_;
  std::vector<std::function<void()>> work_;  // Functions of the lanes that are not done.
  size_t current_ = kNobody;
  bool ending_ = false;
  int waits_ = 0;
  std::mt19937_64 random_;
  std::vector<std::thread> threads_;
};

}  // namespace innkeeper::test
