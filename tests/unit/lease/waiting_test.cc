// Waiting in line while the machine is slow, or cannot be seen for a moment.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "lease/watch.h"
#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;

class LeaseWaiting : public LeaseFixture {
 protected:
  LeaseWaiting() : LeaseFixture(idle_machine(1)) {}
  // Time of the last touch of the place in the line, ns; 0: there is no place.
  int64_t touched() {
    const std::vector<Entry> live = arbiter_.list().value();
    for (const Entry& entry : live)
      if (entry.record.kind == Kind::waiting) return entry.touched_ns;
    return 0;
  }
};

// Each look at the GPUs may take longer than kPlaceLost.
TEST_F(LeaseWaiting, ASlowLookLosesNoPlace) {
  Lease lease = arbiter_.acquire(whole(), machine_).value();
  std::atomic<int> looks{0};
  std::atomic<bool> go_on{false};
  std::thread waiter([&] {
    const auto look = [&]() -> Result<Machine> {
      if (++looks == 1) std::this_thread::sleep_for(600ms);
      for (int i = 0; looks > 1 && i < 4500 && !go_on; ++i) std::this_thread::sleep_for(10ms);
      return machine_;
    };
    EXPECT_TRUE(arbiter_.acquire(waiting(whole()), look).ok());
  });
  ASSERT_TRUE(soon([&] { return looks == 2; }));
  const int64_t before = touched();
  EXPECT_GT(before, 0);
  EXPECT_TRUE(soon([&] { return touched() > before + 500'000'000; }));
  lease.release();
  go_on = true;
  waiter.join();
}

// Each of a thousand waiters touches its place, and a touch must not wake the others.
TEST_F(LeaseWaiting, ATouchedPlaceWakesNoRequest) {
  const Lease lease = arbiter_.acquire(whole(), machine_).value();
  Watch watch(arbiter_.directory());
  (void)watch.wait(0ms);
  const int64_t before = machine_clock_ns();
  touch(lease.descriptor());
  EXPECT_FALSE(watch.wait(50ms));
  EXPECT_GE(arbiter_.list().value().at(0).touched_ns, before) << "touched it was";
  ASSERT_EQ(pwrite(lease.descriptor(), "\0", 1, 2 * kSlotBytes), 1);
  EXPECT_TRUE(watch.wait(1s)) << "the watch is one";
}

// A child forked during the wait has neither the place nor the thread that touches it.
TEST_F(LeaseWaiting, AChildMadeMeanwhileCanGiveUp) {
  const Lease lease = arbiter_.acquire(whole(), machine_).value();
  pid_t child = -1;
  const auto fork_once = [&] {
    if (child < 0) {
      child = fork();
      return child == 0;
    }
    return true;
  };
  const auto look = [&]() -> Result<Machine> {
    if (child < 0) std::this_thread::sleep_for(600ms);  // Slow, so that the waiter starts its thread.
    return machine_;
  };
  const Status given_up = arbiter_.acquire(waiting(whole()), look, fork_once).status();
  if (child == 0) _exit(given_up.code() == Code::busy ? 0 : 1);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(given_up.code(), Code::busy);
  EXPECT_EQ(directory_.files(), 1);
}

// A driver that fails once must not end a wait of hours; a failure from the start means "never".
TEST_F(LeaseWaiting, WhatCannotBeSeenForAMomentIsWaitedFor) {
  Machine unknown = machine_;
  unknown.gpus[0].total = Bytes(0);
  unknown.gpus[0].free.reset();
  for (const Machine& blind : {unknown, Machine()}) {
    Lease lease = arbiter_.acquire(whole(), machine_).value();
    int looks = 0;
    const auto look = [&]() -> Result<Machine> {
      if (++looks == 4) lease.release();
      return looks == 3 ? blind : machine_;
    };
    const Result<Lease> granted = arbiter_.acquire(waiting(share(GiB(40))), look);
    EXPECT_TRUE(granted.ok()) << granted.status().message();
    EXPECT_GE(looks, 4);
  }
  EXPECT_EQ(arbiter_.acquire(share(GiB(40)), unknown).status().code(), Code::invalid_argument);
}

// A request allowed to use all GPUs need not name them; it can name at most kMaxClaims.
TEST_F(LeaseWaiting, OnAMachineOfManyGpus) {
  const int count = static_cast<int>(kMaxClaims) + 6;
  machine_ = test::idle_machine(count);
  Request request = whole();
  request.allowed.emplace();
  for (const Gpu& gpu : machine_.gpus) request.allowed->push_back(gpu.uuid);
  std::vector<Lease> all;
  for (int i = 0; i < count; ++i) all.push_back(arbiter_.acquire(request, machine_).value());
  request.wait_limit = 10ms;
  const auto look = [&]() -> Result<Machine> { return machine_; };
  Status refused = arbiter_.acquire(waiting(request), look).status();
  EXPECT_EQ(refused.code(), Code::busy);
  EXPECT_EQ(refused.message().substr(0, 7), "waited ") << refused.message();
  request.allowed->pop_back();
  refused = arbiter_.acquire(waiting(request), look).status();
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("the 69 GPUs that may be used"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace innkeeper::lease
