// One lease in several processes: changes by one, seen and kept by the others; taking over a descriptor.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "support/lease_folder.h"
#include "support/watchdog.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;
using test::in_child;
using test::share;
using test::wait_for;

class LeaseShared : public testing::Test {
 protected:
  Bytes available() { return arbiter_.ledger(machine_).value()[0].available; }
  // Another process that has the lease does this with it, and leaves it.
  int in_another(Lease& lease, const std::function<bool(Lease&)>& body) {
    return lease.share_with_children().ok() ? wait_for(in_child([&] {
      const bool good = body(lease);
      lease.leave();
      return good ? 0 : 1;
    }))
                                            : -1;
  }

  test::Watchdog watchdog_{60s};
  test::LeaseFolder folder_;
  Arbiter arbiter_ = folder_.arbiter();
  Machine machine_ = test::idle_machine(1, GiB(40));
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
  request.expires_after = 300ms;
  Lease lease = arbiter_.acquire(request, machine_).value();
  ASSERT_EQ(in_another(lease,
                       [&](Lease& its) {
                         return arbiter_.resize(its, GiB(35), machine_).ok() && arbiter_.renew(its, 1h).ok();
                       }),
            0);
  EXPECT_EQ(lease.claims()[0].bytes, GiB(35));
  std::this_thread::sleep_for(350ms);
  EXPECT_TRUE(lease.intact());
  ASSERT_EQ(in_another(lease, [&](Lease& its) { return arbiter_.renew(its, 1ms).ok(); }), 0);
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(lease.intact());
}

}  // namespace
}  // namespace innkeeper::lease
