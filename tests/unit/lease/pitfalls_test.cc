// Mistakes of other tools in choosing GPUs (docs/design/leases.md has the list) that no other test covers:
// through the fake library, and with real files, locks and processes.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "lease/from_snapshot.h"
#include "lease/process.h"
#include "support/fake_gpus.h"
#include "support/lease_fixture.h"
#include "telemetry/visible.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;
using telemetry::snapshot;
using telemetry::Wanted;
using test::FakeGpus;

Machine seen() { return from_snapshot(snapshot(Wanted::memory | Wanted::processes)); }

class LeasePitfalls : public LeaseFixture {
 protected:
  Standing standing() { return arbiter_.ledger(seen()).value().at(0); }
};

std::string gpu(const std::string& memory, const std::string& more = "") {
  return "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  utilization 1 1\n  memory " + memory + "\n" + more;
}

// Pitfall 6: an instance may be destroyed at any time, and the other instances get new handles.
TEST_F(LeasePitfalls, ADestroyedInstanceIsNoDeviceAndHidesNoOther) {
  const std::string head = "gpu GPU-aaaaaaaa\n  mig 7\n";
  const std::string one = "instance MIG-11111111 1 0\n  memory 20G 0 0\n";
  const std::string two = "instance MIG-22222222 2 0\n  memory 10G 0 0\n";
  FakeGpus gpus(head + one + two);
  ASSERT_EQ(seen().gpus.size(), 2U);
  gpus.change(head + two);
  const Machine left = seen();
  ASSERT_EQ(left.gpus.size(), 1U);
  EXPECT_EQ(left.gpus[0].uuid, "MIG-22222222");
  EXPECT_EQ(left.gpus[0].total, GiB(10));
  const telemetry::Snapshot now = snapshot(Wanted::nothing);
  EXPECT_TRUE(telemetry::resolve_visible("MIG-11111111", "", now).uuids.empty());
  EXPECT_EQ(telemetry::resolve_visible("GPU-aaaaaaaa", "", now).uuids,
            std::vector<std::string>{"MIG-22222222"});
  // The instance disappears between two calls about it.
  gpus.change(head + "instance MIG-11111111 1 0\n  error nvmlDeviceGetUUID 2\n" + two);
  EXPECT_EQ(seen().gpus.size(), 1U);
  EXPECT_EQ(arbiter_.acquire(whole(), seen()).value().uuids(), "MIG-22222222");
  // A GPU in MIG mode is no device itself, even when it has no instance left.
  gpus.change(head);
  EXPECT_FALSE(arbiter_.acquire(whole(), seen()).ok());
}

// Pitfall 9: the bytes are promised from the grant on, even if part of them is allocated already.
TEST_F(LeasePitfalls, AllocatingWhatWasLeasedChangesNothingForOthers) {
  FakeGpus gpus(gpu("80G 0 0"));
  const Lease lease = arbiter_.acquire(share(GiB(30)), seen()).value();
  const std::string mine = "  process " + std::to_string(getpid()) + " ";
  EXPECT_EQ(standing().available, GiB(50)) << "nothing is allocated yet";
  gpus.change(gpu("80G 0 3G", mine + "3G\n"));
  EXPECT_EQ(standing().available, GiB(50));
  gpus.change(gpu("80G 0 30G", mine + "30G\n"));
  EXPECT_EQ(standing().available, GiB(50));
  EXPECT_EQ(standing().foreign, Bytes(0));
  gpus.change(gpu("80G 0 33G", mine + "30G\n  process 999999999 3G\n"));
  EXPECT_EQ(standing().foreign, GiB(3));
}

// Pitfall 11: a driver that lists no process while memory is used hides processes, so the ledger concludes
// nothing from the list. It must not conclude that the lease has allocated nothing: its bytes would count
// twice for the lease's lifetime.
TEST_F(LeasePitfalls, AnEmptyProcessListIsUnknownNotIdle) {
  FakeGpus gpus(gpu("80G 0 30G"));
  const Machine machine = seen();
  ASSERT_TRUE(machine.gpus[0].processes_known);
  Entry entry{"00000000000000aa", {}, 0};
  entry.record.claims = {{"GPU-aaaaaaaa", GiB(30)}};
  entry.record.process = {getpid(), 1};
  entry.record.pid_namespace = own_pid_namespace();
  const View view{kWarmUpNs + 1, own_pid_namespace()};
  entry.record.since_ns = 2;  // The lease is not warm yet.
  EXPECT_EQ(make_ledger(machine, {entry}, view)[0].available, GiB(20));
  entry.record.since_ns = 0;
  const Standing standing = make_ledger(machine, {entry}, view)[0];
  EXPECT_EQ(standing.foreign, Bytes(0));
  EXPECT_EQ(standing.available, GiB(50));
  // Without a lease the memory counts as used all the same.
  EXPECT_EQ(make_ledger(machine, {}, view)[0].available, GiB(50));
}

// Pitfall 14: of a process that cannot be inspected only its use of memory is known.
TEST_F(LeasePitfalls, BytesOfAProcessThatCannotBeLookedIntoCount) {
  FakeGpus gpus(gpu("80G 0 50G", "  process 999999999 50G\n"));
  EXPECT_EQ(standing().foreign, GiB(50));
  EXPECT_FALSE(arbiter_.acquire(share(GiB(40)), seen()).ok());
  EXPECT_TRUE(arbiter_.acquire(share(GiB(30)), seen()).ok());
  // The size may be unknown, too: the GPU itself still reports its used memory.
  gpus.change(gpu("80G 0 50G", "  process 999999999 unknown\n"));
  EXPECT_FALSE(arbiter_.acquire(share(GiB(40)), seen()).ok());
}

// Pitfall 15: POSIX locks are lost when any descriptor of the file is closed anywhere in the process.
TEST_F(LeasePitfalls, ClosingAnotherDescriptorOfTheFileEndsNothing) {
  const Machine machine = test::idle_machine(1);
  const Lease lease = arbiter_.acquire(whole(), machine).value();
  for (const int flags : {O_RDONLY, O_RDWR}) {
    const int fd = open(path("l" + lease.id()).c_str(), flags | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    close(fd);
  }
  // Listing opens and closes the file too.
  ASSERT_EQ(arbiter_.list().value().size(), 1U);
  EXPECT_EQ(wait_for(in_child([&] { return arbiter_.acquire(whole(), machine).ok() ? 1 : 0; })), 0);
  EXPECT_TRUE(lease.intact());
}

// Pitfall 16, of the global lock: a child forked under the lock lives on when the parent is killed there.
TEST_F(LeasePitfalls, AChildMadeUnderTheGlobalLockDoesNotHoldIt) {
  const Machine machine = test::idle_machine(1);
  { const Lease lease = arbiter_.acquire(whole(), machine).value(); }
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t parent = in_child([&] {
    GlobalLock lock;
    if (!lock.lock(*directory_.directory(), 10s).ok()) return 1;
    const pid_t child = in_child([] { return pause(); });
    return write(ready[1], &child, sizeof child) == sizeof child ? pause() : 1;
  });
  pid_t child = 0;
  ASSERT_EQ(read(ready[0], &child, sizeof child), ssize_t(sizeof child));
  arbiter_.set_lock_limit(100ms);
  EXPECT_EQ(arbiter_.acquire(whole(), machine).status().code(), Code::busy) << "the parent holds it";
  kill(parent, SIGKILL);
  wait_for(parent);
  arbiter_.set_lock_limit(10s);
  EXPECT_EQ(kill(child, 0), 0);
  EXPECT_TRUE(arbiter_.acquire(whole(), machine).ok());
  kill(child, SIGKILL);
  close(ready[0]), close(ready[1]);
}

// Pitfall 19: in a sticky directory O_CREAT fails on another user's file where fs.protected_regular is set,
// for root as well. So the arbiter opens the lock without O_CREAT, and every user can take another user's
// lock.
TEST_F(LeasePitfalls, AnotherUsersLockFileIsOpenedWithoutMakingIt) {
  IK_TEST_NEEDS_ROOT();
  const Machine machine = test::idle_machine(1);
  ASSERT_EQ(chown(path(kLockName).c_str(), 40001, 40001), 0);
  struct stat before {
  }, after{};
  ASSERT_EQ(stat(path(kLockName).c_str(), &before), 0);
  EXPECT_TRUE(arbiter_.acquire(whole(), machine).ok());
  EXPECT_EQ(wait_for(in_child([&] {
              if (setgroups(0, nullptr) != 0 || setgid(40002) != 0 || setuid(40002) != 0) return 77;
              return arbiter_.acquire(whole(), machine).ok() ? 0 : 1;
            })),
            0);
  ASSERT_EQ(stat(path(kLockName).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "it is never made again (pitfall 20)";
}

// Pitfall 21: files that a stopped machine left on a disk.
TEST_F(LeasePitfalls, AfterARebootAllIsFree) {
  const Machine machine = test::idle_machine(2);
  Record record;
  record.claims = {{machine.gpus[0].uuid, GiB(80)}, {machine.gpus[1].uuid, GiB(80)}};
  record.exclusive = true;
  record.revision = 1;
  record.boot_id = "00000000-0000-0000-0000-000000000000";
  record.process = {1, 0};  // This process number lives in every boot.
  const std::string slot = encode(record).value();
  for (const char* name : {"l00000000000000aa", "t00000000000000bb"}) {
    const int fd = open(path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_EQ(write(fd, slot.data(), slot.size()), ssize_t(slot.size()));
    close(fd);
  }
  EXPECT_TRUE(arbiter_.acquire(whole(2), machine).ok());
  EXPECT_EQ(directory_.files(), 0);
}

}  // namespace
}  // namespace innkeeper::lease
