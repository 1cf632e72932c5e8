// A process keeps the global lock locked: others are granted GPUs all the same, and never the same twice.
// Needs root, since root's own processes are never taken for such: each one here is a child that gives it up.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lease/kill_point.h"
#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kOther = 40001;
constexpr uid_t kKeeper = 40002;

// A signal between processes that an event has happened.
class Bell {
 public:
  Bell() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~Bell() { close(ends_[0]), close(ends_[1]); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() const { EXPECT_EQ(write(ends_[1], "x", 1), 1); }
  void wait() const {
    char byte = 0;
    EXPECT_EQ(read(ends_[0], &byte, 1), 1);
  }

 private:
  std::array<int, 2> ends_{};
};

// Action of this process at its first arrival at the step.
std::string at_step;            // NOLINT(cert-err58-cpp)
std::function<void()> do_once;  // NOLINT(cert-err58-cpp)

void at(const std::string& name, std::function<void()> what) {
  at_step = name;
  do_once = std::move(what);
  kill_point.store([](const char* now) {
    if (at_step != now) return;
    at_step.clear();
    do_once();
  });
}

// Stops this process in the middle of its next grant: it has read the leases, and has published nothing.
void stop_once_scanned(const Bell& inside, const Bell& go_on) {
  at("scanned", [&] {
    inside.ring();
    go_on.wait();
  });
}

class LeaseKeptLockTest : public LeaseFixture {
 protected:
  LeaseKeptLockTest() : LeaseFixture(idle_machine(1)) {}
  void SetUp() override {
    IK_TEST_NEEDS_ROOT();
    const Lease makes_the_lock = arbiter_.acquire(share(GiB(1)), machine_).value();
  }
  void TearDown() override {
    kill_point.store(nullptr);
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      wait_for(child);
    }
  }

  pid_t as(uid_t user, const std::function<int()>& body) {
    children_.push_back(in_child(
        [&] { return setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0 ? body() : 77; }));
    return children_.back();
  }
  int end_of(pid_t child) {
    std::erase(children_, child);
    return wait_for(child);
  }
  int take_lock() const {
    const int fd = open(path(kLockName).c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(flock(fd, LOCK_EX), 0);
    return fd;
  }
  // A process of this user that holds the lock until `until` rings, or for ever.
  pid_t keep(uid_t user, const Bell* until = nullptr) {
    Bell kept;
    const pid_t child = as(user, [&] {
      const int fd = take_lock();
      kept.ring();
      if (until == nullptr) return pause();
      until->wait();
      close(fd);
      return pause();
    });
    kept.wait();
    return child;
  }
  bool granted(const Request& request) { return arbiter_.acquire(request, machine_).ok(); }
  // A child that keeps its granted lease until the test ends, and rings after the grant. Exit code 3: it was
  // refused.
  pid_t holder(const Request& request, const Bell& has_it) {
    return as(kOther, [&] {
      const Result<Lease> lease = arbiter_.acquire(request, machine_);
      if (!lease.ok()) return 3;
      has_it.ring();
      return pause();
    });
  }
  size_t leases() { return arbiter_.list().value().size(); }

  std::vector<pid_t> children_;
};

TEST_F(LeaseKeptLockTest, AHolderThatNeverReleasesItStopsNoRequest) {
  keep(kKeeper);
  const auto begin = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  const Result<Lease> lease = arbiter_.acquire(share(GiB(60)), machine_);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 2s) << "not before it is sure";
  EXPECT_NE(said.find("alloc.lock is kept locked by pid " + std::to_string(children_[0])), std::string::npos)
      << said;
  EXPECT_FALSE(granted(share(GiB(60)))) << "what was granted counts";
}

TEST_F(LeaseKeptLockTest, AWaitingRequestIsServedInOrder) {
  keep(kKeeper);
  Lease first = arbiter_.acquire(whole(), machine_).value();
  const Bell has_it;
  const pid_t waiter = as(kOther, [&] {
    const Result<Lease> lease = arbiter_.acquire(waiting(whole()), [&] { return Result<Machine>(machine_); });
    if (!lease.ok()) return 3;
    has_it.ring();
    return pause();
  });
  ASSERT_TRUE(soon([&] { return leases() == 2; }));
  first.release();
  has_it.wait();
  EXPECT_FALSE(granted(whole()));
  EXPECT_EQ(kill(waiter, 0), 0);
}

// Two processes hold the lock alternately, so that the holder changes all the time.
TEST_F(LeaseKeptLockTest, ASharedLockStopsNoRequest) {
  Bell kept;
  for (const auto offset : {0ms, 300ms})
    as(kKeeper, [&] {
      const int fd = open(path(kLockName).c_str(), O_RDONLY | O_CLOEXEC);
      std::this_thread::sleep_for(offset);
      for (bool first = true;; first = false) {
        EXPECT_EQ(flock(fd, LOCK_SH), 0);
        if (first) kept.ring();
        std::this_thread::sleep_for(500ms);
        flock(fd, LOCK_UN);
        std::this_thread::sleep_for(100ms);
      }
      return 0;
    });
  kept.wait();
  kept.wait();
  EXPECT_TRUE(granted(share(GiB(60))));
}

// The lock's process has ended and is a zombie; its child holds the lock.
TEST_F(LeaseKeptLockTest, AnEndedHolderStopsNoRequest) {
  Bell kept;
  as(kKeeper, [&] {
    const pid_t ends = in_child([&] {
      take_lock();
      const pid_t keeps =
          in_child([] { return static_cast<int>(sleep(8)); });  // No process is left to end it.
      kept.ring();
      return keeps > 0 ? 0 : 1;
    });
    return ends > 0 ? pause() : 1;
  });
  kept.wait();
  EXPECT_TRUE(granted(share(GiB(60))));
}

#ifndef __SANITIZE_THREAD__  // The thread sanitizer allows no threads in a forked child.
TEST_F(LeaseKeptLockTest, AHolderThatKeepsStartingThreadsStopsNoRequest) {
  Bell kept;
  as(kKeeper, [&] {
    take_lock();
    kept.ring();
    for (;;) std::thread([] { std::this_thread::sleep_for(200ms); }).join();
    return 0;
  });
  kept.wait();
  EXPECT_TRUE(granted(share(GiB(60))));
}
#endif

// An override loses only the name in the record.
TEST_F(LeaseKeptLockTest, ATakeoverOfALeaseDoesNotWaitLong) {
  Lease lease = arbiter_.acquire(share(GiB(60)), machine_).value();
  ASSERT_TRUE(lease.share_with_children().ok());
  keep(kKeeper);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(arbiter_.take_over(lease).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  EXPECT_TRUE(lease.intact());
}

TEST_F(LeaseKeptLockTest, RootsIsRespected) {
  keep(0);
  arbiter_.set_lock_limit(2800ms);
  EXPECT_FALSE(granted(whole()));
}

TEST_F(LeaseKeptLockTest, AStoppedOneIsWaitedForAndNamed) {
  const pid_t keeper = keep(kKeeper);
  kill(keeper, SIGSTOP);
  arbiter_.set_lock_limit(2800ms);
  const Status status = arbiter_.acquire(whole(), machine_).status();
  EXPECT_EQ(status.code(), Code::busy);
  EXPECT_NE(status.message().find("by pid " + std::to_string(keeper)), std::string::npos) << status.message();
}

TEST_F(LeaseKeptLockTest, OneThatComputesIsWaitedFor) {
  Bell kept;
  as(kKeeper, [&] {
    take_lock();
    kept.ring();
    for (std::atomic<bool> computing{true}; computing;) {
    }
    return 0;
  });
  kept.wait();
  arbiter_.set_lock_limit(2800ms);
  EXPECT_FALSE(granted(whole()));
}

// Two processes override the lock at once: each has read the leases before the other published its own.
TEST_F(LeaseKeptLockTest, TwoAtOnceAreNotGrantedTheSame) {
  keep(kKeeper);
  const Bell has_it;
  at("scanned", [&] {
    at_step.clear();
    holder(whole(), has_it);
    has_it.wait();
  });
  EXPECT_FALSE(granted(whole()));
  EXPECT_EQ(leases(), 1U);
}

// The lock becomes free in the middle of an override. Another process takes it, which has read the leases
// before this one published and publishes after this one has looked.
TEST_F(LeaseKeptLockTest, AHolderThatGetsTheLockMeanwhileIsNotOverlooked) {
  const Bell let_go, inside, go_on;
  keep(kKeeper, &let_go);
  pid_t other = 0;
  at("scanned", [&] {
    let_go.ring();
    other = as(kOther, [&] {
      stop_once_scanned(inside, go_on);
      const Result<Lease> lease = arbiter_.acquire(whole(), machine_);
      if (!lease.ok()) return 3;
      inside.ring();
      return pause();
    });
    inside.wait();
    at("unlocked", [&] { go_on.ring(); });  // This process has read the leases and decided.
  });
  const bool both_refused = !granted(whole());
  EXPECT_TRUE(both_refused);
  inside.wait();  // The other process has the lease.
  EXPECT_EQ(leases(), 1U);
}

// A process sleeps with the lock in the middle of a grant, for example on a machine that was frozen. The
// other process overrides it.
TEST_F(LeaseKeptLockTest, AHolderThatSleptLooksAgain) {
  const Bell inside, go_on;
  const pid_t slept = as(kOther, [&] {
    stop_once_scanned(inside, go_on);
    return granted(whole()) ? 0 : 3;
  });
  inside.wait();
  const Result<Lease> lease = arbiter_.acquire(whole(), machine_);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  go_on.ring();
  EXPECT_EQ(end_of(slept), 3);
  EXPECT_EQ(leases(), 1U);
}

// The same for a process that sleeps before it reads the clock, and only a little afterwards.
TEST_F(LeaseKeptLockTest, TheTimeCountsFromBeforeTheLock) {
  const Bell inside, go_on;
  const pid_t slept = as(kOther, [&] {
    at("lock taken", [&] {
      inside.ring();
      // Waits until another process, which has read the leases but not yet published, has overridden the
      // lock.
      go_on.wait();
      at("scanned", [] { std::this_thread::sleep_for(700ms); });
    });
    return granted(whole()) ? 0 : 3;
  });
  inside.wait();
  at("scanned", [&] {
    go_on.ring();
    std::this_thread::sleep_for(300ms);
  });
  const Result<Lease> first = arbiter_.acquire(whole(), machine_);
  EXPECT_EQ((first.ok() ? 1 : 0) + (end_of(slept) == 0 ? 1 : 0), 1) << "to one of the two";
}

// The same for a process that grows its lease.
TEST_F(LeaseKeptLockTest, AHolderThatSleptDoesNotGrow) {
  const Bell has_it, grow, inside, go_on;
  const pid_t slept = as(kOther, [&] {
    Lease lease = arbiter_.acquire(share(GiB(20)), machine_).value();
    has_it.ring();
    grow.wait();
    stop_once_scanned(inside, go_on);
    const bool grown = arbiter_.resize(lease, GiB(50), machine_).ok();
    return grown ? 0 : lease.claims()[0].bytes == GiB(20) ? 3 : 4;
  });
  has_it.wait();
  grow.ring();
  inside.wait();
  const Result<Lease> lease = arbiter_.acquire(share(GiB(50)), machine_);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  go_on.ring();
  EXPECT_EQ(end_of(slept), 3);
  EXPECT_EQ(available(), GiB(30));
}

// A process without the lock removes no file: the name may be another lease's by then.
TEST_F(LeaseKeptLockTest, DeadOnesAreLeftLying) {
  Lease lease = arbiter_.acquire(share(GiB(1)), machine_).value();
  const std::string file = path("l" + lease.id());
  lease.leave();  // No process holds its lock.
  keep(kKeeper);
  EXPECT_TRUE(granted(share(GiB(60))));
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
}

// A GPU has memory for one lease at a time, which the processes check themselves.
TEST_F(LeaseKeptLockTest, AStormIsPromisedNothingTwice) {
  keep(kKeeper);
  auto* const there = static_cast<std::atomic<int>*>(
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto end = std::chrono::steady_clock::now() + 5s;
  const auto over = [&] { return std::chrono::steady_clock::now() > end; };
  std::vector<pid_t> stormers;
  for (uid_t user = kOther + 10; user < kOther + 14; ++user)
    stormers.push_back(as(user, [&] {
      for (int wins = 0;; ++wins) {
        Result<Lease> lease = arbiter_.acquire(
            waiting(share(GiB(50))), [&] { return Result<Machine>(machine_); }, over);
        if (!lease.ok() || over()) return wins > 0 ? 0 : 4;
        if (there->fetch_add(1) != 0) return 5;
        std::this_thread::sleep_for(1ms);
        if (there->fetch_sub(1) != 1) return 6;
      }
    }));
  const std::vector<pid_t> all = stormers;
  for (const pid_t stormer : all) EXPECT_EQ(end_of(stormer), 0);
  munmap(there, sizeof(std::atomic<int>));
}

}  // namespace
}  // namespace innkeeper::lease
