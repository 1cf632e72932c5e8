// The fixture for tests of leases through real files and processes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "lease/arbiter.h"
#include "support/child.h"
#include "support/soon.h"
#include "support/temporary_lease_directory.h"
#include "support/watchdog.h"

// Skips the test unless its process may become other users. For the beginning of a test's body.
#define IK_TEST_NEEDS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "other users can be tried only by root"

namespace innkeeper::lease {

using test::gpu_name;
using test::idle_machine;
using test::in_child;
using test::share;
using test::soon;
using test::TemporaryLeaseDirectory;
using test::wait_for;
using test::whole;

// A directory of the test's own, an arbiter of it, and a machine whose GPUs only leases use.
class LeaseFixture : public testing::Test {
 protected:
  explicit LeaseFixture(Machine machine = idle_machine(2)) : machine_(std::move(machine)) {}

  // Bytes of a GPU that are not promised.
  Bytes available(int gpu = 0) {
    return arbiter_.ledger(machine_).value()[static_cast<size_t>(gpu)].available;
  }
  static Request waiting(Request request) {
    request.wait = true;
    return request;
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  test::Watchdog watchdog_{std::chrono::seconds(60)};
  TemporaryLeaseDirectory directory_;
  Arbiter arbiter_ = directory_.arbiter();
  Machine machine_;
};

}  // namespace innkeeper::lease
