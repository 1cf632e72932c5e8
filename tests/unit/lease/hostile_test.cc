// Another user's files in the shared directory: links, pipes, huge and unreadable files, false records, files
// deleted during use. None of them may change another user's leases, stop the program, or crash it. Needs
// root: the other users are children that give root up.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kVictim = 40001;
constexpr uid_t kVillain = 40002;

bool become(uid_t user) { return setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0; }

// Another user's process: it has run `body`, and lives as long as this object.
class Villain {
 public:
  explicit Villain(const std::function<bool()>& body) {
    int ends[2];
    if (pipe(ends) != 0) return;
    process_ =
        in_child([&] { return become(kVillain) && body() && write(ends[1], "x", 1) == 1 ? pause() : 1; });
    close(ends[1]);  // Closed here, so that the read below returns if the child fails.
    char byte = 0;
    ready_ = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
  }
  ~Villain() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    wait_for(process_);
  }
  Villain(const Villain&) = delete;
  Villain& operator=(const Villain&) = delete;
  bool ready() const { return ready_; }

 private:
  pid_t process_ = -1;
  bool ready_ = false;
};

class LeaseHostileTest : public LeaseFixture {
 protected:
  // Runs `body` as `user`; returns 77 if the machine does not permit the change of user.
  int as(uid_t user, const std::function<int()>& body) {
    return wait_for(in_child([&] { return become(user) ? body() : 77; }));
  }
  // Every user gets all that an empty machine grants.
  void everybody_gets_all() {
    EXPECT_TRUE(arbiter_.acquire(whole(2), machine_).ok());
    EXPECT_EQ(arbiter_.list().value().size(), 0U);
  }
  // Holds a file as its lease's owner would, with forged content.
  static int hold(const std::string& name, const std::string& content) {
    const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    struct flock life {};
    life.l_type = F_WRLCK;
    if (fd < 0 || write(fd, content.data(), content.size()) != ssize_t(content.size()) ||
        fcntl(fd, F_OFD_SETLK, &life) != 0)
      return -1;
    return fd;
  }
};

TEST_F(LeaseHostileTest, ThingsThatAreNoLeaseFiles) {
  ASSERT_EQ(mkdir(path("l00000000000000d0").c_str(), 0777), 0);
  ASSERT_EQ(mkfifo(path("l00000000000000f0").c_str(), 0666), 0);
  ASSERT_EQ(symlink("/etc/passwd", path("l0000000000000001").c_str()), 0);
  ASSERT_EQ(symlink("l0000000000000002", path("l0000000000000002").c_str()), 0);
  std::ofstream(path("lease-of-mine")) << "kind=held\n";
  std::ofstream(path("l0000000000000003x")) << "kind=held\n";
  everybody_gets_all();
}

TEST_F(LeaseHostileTest, LiveFilesWithoutARecordClaimNothing) {
  const std::string huge(1 << 20, 'x');
  std::vector<int> held;
  for (const std::string& content :
       {std::string(), huge, std::string(20000, '\0'), std::string("\xff\xfe\x00", 3),
        std::string("innkeeper-lease 1 1 999999999999 0\nkind=held\n"),
        std::string("innkeeper-lease 2 1 0 0\n")})
    held.push_back(hold(path("l00000000000000a" + std::to_string(held.size())), content));
  for (const int fd : held) EXPECT_GE(fd, 0);
  everybody_gets_all();
  for (const int fd : held) close(fd);
}

// A sparse file of the largest size.
TEST_F(LeaseHostileTest, AHugeFileIsNotRead) {
  const int fd = hold(path("l00000000000000aa"), "innkeeper-lease 1 ");
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, off_t{1} << 40), 0);
  const auto begin = std::chrono::steady_clock::now();
  everybody_gets_all();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  close(fd);
}

TEST_F(LeaseHostileTest, TheSameFileUnderTwoNamesCountsOnce) {
  const Lease lease = arbiter_.acquire(share(GiB(30)), machine_).value();
  ASSERT_EQ(link(path("l" + lease.id()).c_str(), path("lffffffffffffffff").c_str()), 0);
  ASSERT_EQ(link(path("l" + lease.id()).c_str(), path("l0000000000000000").c_str()), 0);
  EXPECT_EQ(arbiter_.ledger(machine_).value()[0].available, GiB(50));
}

// Another user's read lock would keep a dead lease alive, if read locks counted as life.
TEST_F(LeaseHostileTest, AReadLockKeepsNothingAlive) {
  std::string id;
  Lease lease = arbiter_.acquire(whole(2), machine_).value();
  const std::string name = path("l" + lease.id());
  const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  lease.leave();  // The lease is dead: no process holds its lock.
  struct flock pretence {};
  pretence.l_type = F_RDLCK;
  ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &pretence), 0);
  everybody_gets_all();
  close(fd);
}

TEST_F(LeaseHostileTest, OthersLeasesAreRespectedAndCannotBeTouched) {
  IK_TEST_NEEDS_ROOT();
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready) | pipe(done), 0);
  const pid_t victim = in_child([&] {
    if (!become(kVictim)) return 77;
    const Result<Lease> lease = arbiter_.acquire(share(GiB(60)), machine_);
    char byte = 0;
    if (!lease.ok() || write(ready[1], lease.value().id().data(), 16) != 16 || read(done[0], &byte, 1) != 1)
      return 1;
    return lease.value().intact() ? 0 : 2;
  });
  char id[17] = {};
  ASSERT_EQ(read(ready[0], id, 16), 16);
  const std::string file = path(std::string("l") + id);
  EXPECT_EQ(as(kVillain,
               [&] {
                 int wrong = 0;
                 wrong += open(file.c_str(), O_RDWR) >= 0;
                 wrong += unlink(file.c_str()) == 0;
                 wrong += rename(file.c_str(), path("l0000000000000009").c_str()) == 0;
                 wrong += unlink(path(kLockName).c_str()) == 0;
                 wrong += arbiter_.revoke(id).ok();
                 wrong += arbiter_.acquire(whole(2), machine_).ok();
                 Request part = share(GiB(1));
                 part.inside = id;
                 wrong += arbiter_.acquire(part, machine_).ok();
                 const auto live = arbiter_.list().value();
                 wrong += live.size() != 1 || live[0].record.uid != kVictim;
                 // Every other user may lease the second GPU, the villain included.
                 wrong += !arbiter_.acquire(whole(1), machine_).ok();
                 return wrong;
               }),
            0);
  ASSERT_EQ(write(done[1], "x", 1), 1);
  EXPECT_EQ(wait_for(victim), 0);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

// A dead lease of another user counts for nothing, even if only its owner may remove it.
TEST_F(LeaseHostileTest, DeadLeasesOfOthersAreSkipped) {
  IK_TEST_NEEDS_ROOT();
  EXPECT_EQ(as(kVictim,
               [&] {
                 Lease lease = arbiter_.acquire(whole(2), machine_).value();
                 lease.leave();
                 return 0;
               }),
            0);
  EXPECT_EQ(directory_.files(), 1);
  EXPECT_EQ(as(kVillain, [&] { return arbiter_.acquire(whole(2), machine_).ok() ? 0 : 1; }), 0);
  EXPECT_EQ(directory_.files(), 1);
  EXPECT_EQ(as(kVictim, [&] { return arbiter_.acquire(whole(2), machine_).ok() ? 0 : 1; }), 0);
  EXPECT_EQ(directory_.files(), 0);
}

// A file that other users cannot read claims none of their memory and blocks no user.
TEST_F(LeaseHostileTest, UnreadableFilesClaimNothing) {
  IK_TEST_NEEDS_ROOT();
  const Villain villain([&] {
    Record record;
    record.claims = {{"GPU-1000", GiB(80)}};
    record.exclusive = true;
    record.revision = 1;
    const int fd = hold(path("l00000000000000cc"), encode(record).value());
    return fchmod(fd, 0) == 0;
  });
  ASSERT_TRUE(villain.ready());
  EXPECT_EQ(as(kVictim, [&] { return arbiter_.acquire(whole(2), machine_).ok() ? 0 : 1; }), 0);
}

// Opening a file under F_SETLEASE waits, 45 seconds by default, for its owner to release it.
TEST_F(LeaseHostileTest, AFileUnderAKernelLeaseStopsNoRequest) {
  signal(SIGIO, SIG_IGN);
  const std::string name = path("l00000000000000dd");
  std::ofstream(name) << "innkeeper-lease 1 ";
  const int fd = open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0) {
    close(fd);
    GTEST_SKIP() << "no file leases here";
  }
  const auto begin = std::chrono::steady_clock::now();
  everybody_gets_all();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 40s);
  close(fd);
}

// The owner of the file is the owner of the lease.
TEST_F(LeaseHostileTest, ARecordCannotNameAnotherOwnerOrHideInHisLease) {
  IK_TEST_NEEDS_ROOT();
  const Lease outer = arbiter_.acquire(share(GiB(30)), machine_).value();
  const Villain villain([&] {
    Record record;
    record.claims = {{"GPU-1000", GiB(30)}};
    record.uid = 0;
    record.inside = {outer.id()};
    record.process.pid = 1;
    record.revision = 5;
    return hold(path("l00000000000000bb"), encode(record).value()) >= 0;
  });
  ASSERT_TRUE(villain.ready());
  const auto live = arbiter_.list().value();
  ASSERT_EQ(live.size(), 2U);
  EXPECT_EQ(live[0].record.uid, kVillain);
  EXPECT_EQ(arbiter_.ledger(machine_).value()[0].available, GiB(20));
  Request part = share(GiB(30));
  part.inside = outer.id();
  EXPECT_TRUE(arbiter_.acquire(part, machine_).ok());  // The other user consumed no part of the lease.
}

// A place in the line inside another user's lease keeps nothing of it.
TEST_F(LeaseHostileTest, NoOtherUserWaitsInLineInsideALease) {
  IK_TEST_NEEDS_ROOT();
  const Lease outer = arbiter_.acquire(share(GiB(30)), machine_).value();
  const Villain villain([&] {
    Record record;
    record.kind = Kind::waiting;
    record.claims = {{outer.uuids(), GiB(80)}};
    record.exclusive = true;
    record.count = 1;
    record.each = GiB(80);
    record.inside = {outer.id()};
    record.revision = record.since_ns = 1;
    return hold(path("l00000000000000bb"), encode(record).value()) >= 0;
  });
  ASSERT_TRUE(villain.ready());
  Request part = share(GiB(30));
  part.inside = outer.id();
  const Result<Lease> granted = arbiter_.acquire(part, machine_);
  EXPECT_TRUE(granted.ok()) << granted.status().message();
}

// A flood of files harms only the leases of their owner.
TEST_F(LeaseHostileTest, AFloodHarmsItsSender) {
  IK_TEST_NEEDS_ROOT();
  const Lease mine = arbiter_.acquire(share(GiB(30)), machine_).value();
  const Villain villain([&] {
    for (int i = 0; i < 3000; ++i) {
      char name[32];
      std::snprintf(name, sizeof name, "l%016x", i);
      close(open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    }
    return true;
  });
  ASSERT_TRUE(villain.ready());
  EXPECT_EQ(as(kVictim,
               [&] {
                 const auto ledger = arbiter_.ledger(machine_).value();
                 return ledger[0].available == GiB(50) && arbiter_.acquire(share(GiB(60)), machine_).ok() ? 0
                                                                                                          : 1;
               }),
            0);
}

TEST_F(LeaseHostileTest, FilesDeletedUnderUsChangeNothing) {
  const Lease lease = arbiter_.acquire(share(GiB(30)), machine_).value();
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    for (int i = 0; !stop; i = (i + 1) % 64) {
      char name[32];
      std::snprintf(name, sizeof name, "l%016x", i);
      close(open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
      unlink(path(name).c_str());
    }
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(arbiter_.ledger(machine_).value()[0].available, GiB(50));
    EXPECT_TRUE(arbiter_.acquire(share(GiB(80)), machine_).ok());
  }
  stop = true;
  churn.join();
}

TEST_F(LeaseHostileTest, TheLockFileReplacedIsNoticed) {
  { const Lease lease = arbiter_.acquire(whole(), machine_).value(); }
  ASSERT_EQ(unlink(path(kLockName).c_str()), 0);
  ASSERT_EQ(symlink("/etc/passwd", path(kLockName).c_str()), 0);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::io_error);
  ASSERT_EQ(unlink(path(kLockName).c_str()), 0);
  EXPECT_TRUE(arbiter_.acquire(whole(), machine_).ok());
}

// Process numbers mean nothing across PID namespaces; locks do.
TEST_F(LeaseHostileTest, AnotherPidNamespaceIsSeen) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t outer = in_child([&] {
    if (unshare(CLONE_NEWPID) != 0) return 77;
    const pid_t inner = in_child([&] {
      const Result<Lease> lease = arbiter_.acquire(whole(2), machine_);
      return lease.ok() && getpid() == 1 && write(ready[1], "x", 1) == 1 ? pause() : 1;
    });
    return write(ready[1], &inner, sizeof inner) == sizeof inner ? wait_for(inner) : 1;
  });
  close(ready[1]);
  char message[1 + sizeof(pid_t)];
  size_t got = 0;
  for (ssize_t part = 1; part > 0 && got < sizeof message; got += static_cast<size_t>(part))
    part = std::max<ssize_t>(0, read(ready[0], message + got, sizeof message - got));
  close(ready[0]);
  if (got == 0) {
    const int status = wait_for(outer);
    ASSERT_EQ(status, 77);
    GTEST_SKIP() << "no PID namespace may be made here";
  }
  ASSERT_EQ(got, sizeof message);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  const auto live = arbiter_.list().value();
  ASSERT_EQ(live.size(), 1U);
  EXPECT_EQ(live[0].record.process.pid, 1);
  kill(outer, SIGKILL);  // The namespace's child goes on.
  wait_for(outer);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  pid_t inner = 0;  // The two messages come in either order.
  memcpy(&inner, message[0] == 'x' ? message + 1 : message, sizeof inner);
  if (message[0] == 'x' && message[sizeof(pid_t)] == 'x') memcpy(&inner, message, sizeof inner);
  kill(inner, SIGKILL);
  EXPECT_TRUE(test::soon([&] { return arbiter_.acquire(whole(2), machine_).ok(); }));
}

}  // namespace
}  // namespace innkeeper::lease
