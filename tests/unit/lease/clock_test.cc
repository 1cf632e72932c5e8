// Leases under a wall clock that an administrator sets: expiry, order and places follow the machine's own
// clock.
#include "base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/lines.h"
#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kHour = 3'600'000'000'000;

class LeaseClock : public LeaseFixture {
 protected:
  LeaseClock() : LeaseFixture(idle_machine(1)) {}
  ~LeaseClock() override { set_clock_off(0); }
  static void set_clock_off(int64_t error_ns) { wall_clock_error_ns = error_ns; }
  int places() {
    int count = 0;
    const std::vector<Entry> live = arbiter_.list().value();
    for (const Entry& entry : live) count += entry.record.kind == Kind::waiting ? 1 : 0;
    return count;
  }
};

TEST_F(LeaseClock, SetForwardItEndsNoLease) {
  Request request = whole();
  request.expires_after = 1h;
  const Lease lease = arbiter_.acquire(request, machine_).value();
  set_clock_off(2 * kHour);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  EXPECT_TRUE(lease.intact());
  EXPECT_EQ(arbiter_.list().value().size(), 1u);
}

TEST_F(LeaseClock, SetBackItKeepsNoLeaseLonger) {
  Request request = whole();
  request.expires_after = 1s;
  const Lease lease = arbiter_.acquire(request, machine_).value();
  set_clock_off(-2 * kHour);
  EXPECT_TRUE(soon([&] { return !lease.intact(); }));
  EXPECT_TRUE(arbiter_.acquire(whole(), machine_).ok());
}

TEST_F(LeaseClock, RenewalsGoByTheMachinesClock) {
  Request request = whole();
  request.expires_after = 1h;
  Lease lease = arbiter_.acquire(request, machine_).value();
  set_clock_off(3 * kHour);
  EXPECT_TRUE(arbiter_.renew(lease, 1h).ok());
  set_clock_off(0);
  EXPECT_LE(lease.expires_ns(), machine_clock_ns() + kHour);
  EXPECT_TRUE(lease.intact());
}

// The first waiter stays first, whichever way the clock jumps while both wait.
TEST_F(LeaseClock, TheFirstRequestIsServedFirst) {
  for (const int64_t error : {-2 * kHour, 2 * kHour}) {
    set_clock_off(0);
    std::optional<Lease> held(arbiter_.acquire(whole(), machine_).value());
    const auto look = [&]() -> Result<Machine> { return machine_; };
    std::atomic<int> served{0}, first{0}, second{0};
    const auto wait_in_line = [&](std::atomic<int>& when) {
      Arbiter own = directory_.arbiter();
      const Result<Lease> lease = own.acquire(waiting(whole()), look);
      EXPECT_TRUE(lease.ok()) << lease.status().message();
      when = ++served;
      std::this_thread::sleep_for(50ms);
    };
    std::thread one(wait_in_line, std::ref(first));
    ASSERT_TRUE(soon([&] { return places() == 1; }));
    set_clock_off(error);
    std::thread two(wait_in_line, std::ref(second));
    ASSERT_TRUE(soon([&] { return places() == 2; }));
    held.reset();
    one.join();
    two.join();
    EXPECT_EQ(first, 1) << error;
    EXPECT_EQ(second, 2) << error;
  }
}

// Memory kept for a place stays with it even if the clock is hours ahead of the place's last touch.
TEST_F(LeaseClock, APlaceIsNotLostByIt) {
  const Lease half = arbiter_.acquire(share(GiB(40)), machine_).value();
  std::atomic<bool> give_up{false};
  std::thread waiter([&] {
    const auto look = [&]() -> Result<Machine> { return machine_; };
    Arbiter own = directory_.arbiter();
    EXPECT_FALSE(own.acquire(waiting(whole()), look, [&] { return give_up.load(); }).ok());
  });
  ASSERT_TRUE(soon([&] { return places() == 1; }));
  for (const int64_t error : {2 * kHour, -2 * kHour, 24 * 400 * kHour}) {
    set_clock_off(error);
    EXPECT_EQ(arbiter_.acquire(share(GiB(1)), machine_).status().code(), Code::busy) << error;
  }
  give_up = true;
  waiter.join();
}

// A slot with these times.
std::string slot(const std::string& times) {
  const std::string body = "kind=held\n" + times;
  return "innkeeper-lease 1 1 " + std::to_string(body.size()) + " " + hex(fnv1a(body) ^ 1U) + "\n" + body;
}

// A lease of the machine's first moment has a time: it must not be read by the wall clock, which differs at
// each look.
TEST_F(LeaseClock, ATimeOfZeroIsReadBack) {
  Record record;
  record.expires_ns = kHour;
  const std::string text = encode(record).value();
  for (const int64_t error : {-kHour, kHour}) {
    set_clock_off(error);
    const auto read = decode(text);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->since_ns, 0) << error;
    EXPECT_EQ(read->expires_ns, kHour) << error;
  }
}

// Sums of two times must not leave the range of their type.
TEST_F(LeaseClock, TimesBeyondTheLimitAreRefused) {
  for (const char* key : {"since", "expires", "since_start", "expires_start"}) {
    EXPECT_TRUE(decode(slot(std::string(key) + "=" + std::to_string(kLatestNs) + "\n"))) << key;
    EXPECT_FALSE(decode(slot(std::string(key) + "=" + std::to_string(kLatestNs + 1) + "\n"))) << key;
  }
}

// As written by versions that knew the wall clock alone.
TEST_F(LeaseClock, TimesOfTheWallClockAreRead) {
  const int64_t now = wall_clock_ns();
  const auto old = decode(
      slot("since=" + std::to_string(now - kHour) + "\nexpires=" + std::to_string(now + kHour) + "\n"));
  ASSERT_TRUE(old);
  EXPECT_FALSE(old->expired(machine_clock_ns()));
  EXPECT_TRUE(old->expired(machine_clock_ns() + kHour));
  EXPECT_LE(old->since_ns, machine_clock_ns());
  const auto over = decode(slot("since=1\nexpires=2\n"));
  ASSERT_TRUE(over);
  EXPECT_TRUE(over->expired(machine_clock_ns()));
  // An encoded record states both times.
  Record record;
  record.since_ns = 5;
  record.expires_ns = machine_clock_ns() + kHour;
  const int64_t before = wall_clock_ns();
  const std::string text = encode(record).value();
  const size_t expires = text.find("\nexpires=");
  ASSERT_NE(expires, std::string::npos) << text;
  const int64_t at = std::stoll(text.substr(expires + 9));
  EXPECT_GT(at, before + kHour - 60 * kHour / 3600) << text;
  EXPECT_LT(at, before + kHour + 60 * kHour / 3600) << text;
}

}  // namespace
}  // namespace innkeeper::lease
