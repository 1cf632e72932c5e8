// One lease in several processes: a change by one process, its effect on the others; taking over a
// descriptor.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;

class LeaseShared : public LeaseFixture {
 protected:
  LeaseShared() : LeaseFixture(idle_machine(1, GiB(40))) {}
  // Another process that has the lease runs this function with it, then leaves the lease.
  int in_another(Lease& lease, const std::function<bool(Lease&)>& body) {
    if (!lease.share_with_children().ok()) return -1;
    return wait_for(in_child([&] {
      const bool good = body(lease);
      lease.leave();
      return good ? 0 : 1;
    }));
  }
};

TEST_F(LeaseShared, OneRenewsWhatAnotherHasGrown) {
  Lease lease = arbiter_.acquire(share(GiB(10)), machine_).value();
  ASSERT_EQ(in_another(lease, [&](Lease& its) { return arbiter_.resize(its, GiB(35), machine_).ok(); }), 0);
  ASSERT_TRUE(arbiter_.renew(lease, 1h).ok());
  EXPECT_EQ(available(), GiB(5));
  EXPECT_FALSE(arbiter_.acquire(share(GiB(30)), machine_).ok()) << "promised twice";
  EXPECT_EQ(lease.claims()[0].bytes, GiB(35));
}

TEST_F(LeaseShared, OneGrowsWhatAnotherHasGrownAndRenewed) {
  Lease lease = arbiter_.acquire(share(GiB(10)), machine_).value();
  ASSERT_EQ(in_another(lease,
                       [&](Lease& its) {
                         return arbiter_.renew(its, 1h).ok() && arbiter_.resize(its, GiB(30), machine_).ok();
                       }),
            0);
  const Lease other = arbiter_.acquire(share(GiB(10)), machine_).value();
  EXPECT_FALSE(arbiter_.resize(lease, GiB(31), machine_).ok());
  EXPECT_TRUE(arbiter_.resize(lease, GiB(20), machine_).ok());
  EXPECT_EQ(available(), GiB(10));
  EXPECT_GT(lease.expires_ns(), 0);
}

TEST_F(LeaseShared, WhatAnotherChangedIsSeen) {
  Request request = share(GiB(10));
  request.expires_after = 2s;
  Lease lease = arbiter_.acquire(request, machine_).value();
  ASSERT_EQ(in_another(lease,
                       [&](Lease& its) {
                         return arbiter_.resize(its, GiB(35), machine_).ok() && arbiter_.renew(its, 1h).ok();
                       }),
            0);
  EXPECT_EQ(lease.claims()[0].bytes, GiB(35));
  std::this_thread::sleep_for(2100ms);
  EXPECT_TRUE(lease.intact());
  ASSERT_EQ(in_another(lease, [&](Lease& its) { return arbiter_.renew(its, 1ms).ok(); }), 0);
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(lease.intact());
}

TEST_F(LeaseShared, RenewingTakesATimeThatCanBe) {
  Lease lease = arbiter_.acquire(share(GiB(10)), machine_).value();
  for (const auto wrong : {-5000ms, 0ms, std::chrono::milliseconds::max()})
    EXPECT_EQ(arbiter_.renew(lease, wrong).code(), Code::invalid_argument);
  EXPECT_EQ(lease.expires_ns(), 0);
}

// By mistake the number may belong to another file of the program.
TEST_F(LeaseShared, AdoptLeavesWhatIsNoLeaseAsItWas) {
  const std::string path = directory_.path() + "/user";
  const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);  // Not closed by exec().
  EXPECT_EQ(arbiter_.adopt(file).status().code(), Code::invalid_argument);
  EXPECT_EQ(fcntl(file, F_GETFD), 0);
  EXPECT_EQ(write(file, "x", 1), 1);
  close(file);
  // A lease that has ended; the process detects it late, under the lock.
  Request request = share(GiB(10));
  request.expires_after = 1ms;
  const Lease lease = arbiter_.acquire(request, machine_).value();
  std::this_thread::sleep_for(5ms);
  const int copy = dup(lease.descriptor());
  EXPECT_EQ(arbiter_.adopt(copy).status().code(), Code::unavailable);
  EXPECT_EQ(fcntl(copy, F_GETFD), 0);
  close(copy);
}

TEST_F(LeaseShared, OneDescriptorIsAdoptedOnce) {
  const Lease lease = arbiter_.acquire(share(GiB(10)), machine_).value();
  const Status refused = arbiter_.adopt(lease.descriptor()).status();
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("has already"), std::string::npos) << refused.message();
  const int copy = dup(lease.descriptor());
  Lease adopted = arbiter_.adopt(copy).value();
  EXPECT_EQ(fcntl(copy, F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(arbiter_.adopt(copy).ok());
  adopted.leave();
  EXPECT_TRUE(lease.intact());
}

}  // namespace
}  // namespace innkeeper::lease
