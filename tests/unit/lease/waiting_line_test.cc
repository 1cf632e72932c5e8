// A long waiting line: which waiters watch, which sleep, and the order of grants.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "lease/places.h"
#include "lease/process.h"
#include "lease/wait.h"
#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;

int inotify_instances() {
  int count = 0;
  DIR* const open = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(open)) {
    char link[64];
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    const ssize_t length = readlink(path.c_str(), link, sizeof link);
    count += length > 0 && std::string(link, static_cast<size_t>(length)) == "anon_inode:inotify" ? 1 : 0;
  }
  closedir(open);
  return count;
}

class LeaseWaitingLine : public LeaseFixture {
 protected:
  LeaseWaitingLine() : LeaseFixture(idle_machine(1)) {}
  ~LeaseWaitingLine() override {
    give_up_ = true;
    for (std::thread& waiter : waiters_)
      if (waiter.joinable()) waiter.join();
  }
  int places() {
    int count = 0;
    const std::vector<Entry> live = arbiter_.list().value();
    for (const Entry& entry : live) count += entry.record.kind == Kind::waiting ? 1 : 0;
    return count;
  }
  // One waiter after another, so that their order is known.
  void line_up(int count, const Request& request) {
    for (int i = 0; i < count; ++i) {
      const int before = places();
      waiters_.emplace_back([this, request, number = static_cast<int>(waiters_.size())] {
        Arbiter own = directory_.arbiter();
        const auto look = [this]() -> Result<Machine> {
          ++looks_;
          return machine_;
        };
        Result<Lease> lease = own.acquire(waiting(request), look, [this] { return give_up_.load(); });
        if (!lease.ok()) return;
        MutexLock lock(mutex_);
        served_.push_back(number);
      });
      ASSERT_TRUE(soon([&] { return places() == before + 1; }));
    }
  }
  std::vector<int> served() {
    MutexLock lock(mutex_);
    return served_;
  }

  std::atomic<bool> give_up_{false};
  std::atomic<int> looks_{0};
  std::vector<std::thread> waiters_;
  Mutex mutex_;
  std::vector<int> served_ IK_GUARDED_BY(mutex_);
};

TEST_F(LeaseWaitingLine, TheFirstWatchAndTheOthersSleep) {
  const Lease lease = arbiter_.acquire(whole(), machine_).value();
  const int before = inotify_instances();
  line_up(40, whole());
  EXPECT_TRUE(soon([&] { return inotify_instances() - before == kFront; }));
  looks_ = 0;
  std::this_thread::sleep_for(1s);
  EXPECT_LT(looks_, 3 * kFront + 40) << "the others look at the GPUs now and then alone";
}

TEST_F(LeaseWaitingLine, IsServedInTheOrderOfAsking) {
  std::optional<Lease> lease(arbiter_.acquire(whole(), machine_).value());
  line_up(30, whole());
  lease.reset();
  ASSERT_TRUE(soon([&] { return served().size() == 30; }));
  const std::vector<int> order = served();
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int>(i));
}

// A waiter may take GPUs that no waiter ahead of it can use.
TEST_F(LeaseWaitingLine, GpusThatNoRequestAheadNeedsAreGrantedFromTheBack) {
  machine_ = idle_machine(2);
  const Lease first = arbiter_.acquire(whole(), machine_).value();
  const Lease second = arbiter_.acquire(share(GiB(60)), machine_).value();
  Request only_first = whole();
  only_first.allowed = {gpu_name(0)};
  std::optional<Lease> third(arbiter_.acquire(share(GiB(15)), machine_).value());
  line_up(10, only_first);
  Request small = share(GiB(15));
  line_up(1, small);
  EXPECT_TRUE(served().empty());
  third.reset();
  EXPECT_TRUE(soon([&] { return served() == std::vector<int>{10}; }));
}

TEST_F(LeaseWaitingLine, ARequestThatLeavesTheLineLetsTheNextProceed) {
  std::optional<Lease> lease(arbiter_.acquire(whole(), machine_).value());
  std::vector<pid_t> ahead;
  for (int i = 0; i < kFront; ++i) {
    ahead.push_back(in_child([&] {
      const auto look = [&]() -> Result<Machine> { return machine_; };
      (void)directory_.arbiter().acquire(waiting(whole()), look);
      return pause();
    }));
    ASSERT_TRUE(soon([&] { return places() == i + 1; }));
  }
  line_up(1, whole());
  for (const pid_t child : ahead) {
    kill(child, SIGKILL);
    wait_for(child);
  }
  lease.reset();
  EXPECT_TRUE(soon([&] { return served().size() == 1; }));
}

TEST_F(LeaseWaitingLine, AStoppedRequestDoesNotCountAndASlowOneDoes) {
  const int64_t now = machine_clock_ns();
  Entry place;
  sign(place.record);
  const uint64_t space = place.record.pid_namespace;
  const auto silent = [&](std::chrono::nanoseconds time) {
    place.touched_ns = now - time.count();
    return is_lost(place, now, space);
  };
  EXPECT_FALSE(silent(1s));
  EXPECT_FALSE(silent(20s)) << "it runs, but had no processor";
  EXPECT_TRUE(silent(61s));
  EXPECT_FALSE(silent(-1s));
  EXPECT_TRUE(is_lost({"", place.record, now - 20'000'000'000}, now, space + 1)) << "nobody can see it";
  const pid_t child = in_child([] { return pause(); });
  place.record.process = process_line(child).at(0);
  EXPECT_FALSE(silent(20s));
  kill(child, SIGSTOP);
  EXPECT_TRUE(soon([&] { return silent(20s); }));
  EXPECT_FALSE(silent(1s));
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_TRUE(silent(20s)) << "gone";
}

}  // namespace
}  // namespace innkeeper::lease
