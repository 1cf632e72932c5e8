// Reads the directory while the process or the machine runs out of a resource. An arbiter that cannot see all
// leases grants none and removes no file.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "lease/live_file.h"
#include "queue/life.h"
#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

// Limits the process to this number of descriptors.
bool limit_descriptors(rlim_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = most;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

class LeaseFailures : public LeaseFixture {
 protected:
  LeaseFailures() : LeaseFixture(idle_machine(1)) {}
};

// The descriptors run out at each place: at the lock, the list of names, a lease's file.
TEST_F(LeaseFailures, WithoutDescriptorsNothingIsGrantedTwice) {
  const Lease lease = arbiter_.acquire(whole(), machine_).value();
  const int status = wait_for(in_child([&] {
    int failures = 0;
    for (rlim_t most = 0; most < 64; ++most) {
      if (!limit_descriptors(most)) return 1;
      const Result<Lease> second = arbiter_.acquire(whole(), machine_);
      if (second.ok()) return 2;
      failures += second.status().code() == Code::io_error;
      const Result<std::vector<Entry>> live = arbiter_.list();
      if (live.ok() && live.value().size() != 1) return 3;
    }
    return failures >= 3 ? 0 : 4;
  }));
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(lease.intact());
  EXPECT_EQ(directory_.files(), 1);
}

TEST_F(LeaseFailures, WhatCannotBeAskedIsNotDead) {
  EXPECT_EQ(write_locked(-1), std::nullopt);
  EXPECT_TRUE(gone_or_barred(ENOENT));
  for (const int error : {EMFILE, ENFILE, ENOMEM, EIO, EBADF}) EXPECT_FALSE(gone_or_barred(error)) << error;
}

// A job whose life file cannot be read at the moment is not lost.
TEST_F(LeaseFailures, AJobsLifeThatCannotBeReadIsNotOver) {
  const std::string path = directory_.path() + "/life";
  EXPECT_FALSE(queue::look(path).present);
  const OpenFile held = queue::begin_life(path).value();
  EXPECT_EQ(wait_for(in_child([&] {
              if (!limit_descriptors(0)) return 1;
              const queue::Life life = queue::look(path);
              return life.present && life.alive ? 0 : 2;
            })),
            0);
}

}  // namespace
}  // namespace innkeeper::lease
