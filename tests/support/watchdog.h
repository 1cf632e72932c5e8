// Aborts the process with a message when a test does not end in time, because a deadlock prints nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace innkeeper::test {

class Watchdog {
 public:
  // The watchdog calls `report` before it aborts the process; `report` must not wait for the hanging threads.
  explicit Watchdog(std::chrono::seconds limit, std::function<std::string()> report = {})
      : thread_([this, limit, report = std::move(report)] {
          std::unique_lock lock(mutex_);
          waits_ = true;
          changed_.notify_all();
          if (changed_.wait_for(lock, limit, [this] { return over_; })) return;
          std::fprintf(stderr, "watchdog: no end after %lld s: a deadlock? %s\n",
                       static_cast<long long>(limit.count()), report ? report().c_str() : "");
          std::abort();
        }) {
    // A test may fork at once: a starting thread could hold a lock of the allocator then, for which the child
    // would wait in vain.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waits_; });
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waits_ = false;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace innkeeper::test
