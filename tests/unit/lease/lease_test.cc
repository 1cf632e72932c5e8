// Leases through real files and processes: grants, death, fork, exec, passing on, expiry, the line.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lease/process.h"
#include "support/lease_fixture.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;

class LeaseTest : public LeaseFixture {
 protected:
  Arbiter::Look look() {
    return [this]() -> Result<Machine> { return machine_; };
  }
};

TEST_F(LeaseTest, GrantsUntilTheGpuIsPromised) {
  Lease first = arbiter_.acquire(share(GiB(50)), machine_).value();
  Lease second = arbiter_.acquire(share(GiB(50)), machine_).value();
  EXPECT_NE(first.uuids(), second.uuids());
  const Status refused = arbiter_.acquire(share(GiB(50)), machine_).status();
  EXPECT_EQ(refused.code(), Code::busy);
  for (const char* part : {"asked for 1 GPU with 50.0 GiB", "0 have that now",
                           "GPU-1000: 30.0 GiB left of 80.0 GiB", "promised 50.0 GiB (50.0 GiB to ", "pid "})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  EXPECT_TRUE(arbiter_.acquire(share(GiB(30)), machine_).ok());
  first.release();
  EXPECT_FALSE(first.held());
  EXPECT_TRUE(arbiter_.acquire(share(GiB(80)), machine_).ok());
  second.release();
  EXPECT_EQ(directory_.files(), 0);
}

TEST_F(LeaseTest, GangsAreAllOrNothing) {
  const Lease one = arbiter_.acquire(share(GiB(70)), machine_).value();
  EXPECT_EQ(arbiter_.acquire(share(GiB(20), 2), machine_).status().code(), Code::busy);
  EXPECT_EQ(directory_.files(), 1);
  const Lease both = arbiter_.acquire(share(GiB(10), 2), machine_).value();
  EXPECT_EQ(both.uuids(), "GPU-1000,GPU-1001");
}

TEST_F(LeaseTest, WhatCanNeverBeIsSaidAtOnce) {
  EXPECT_EQ(arbiter_.acquire(waiting(share(GiB(81))), look()).status().code(), Code::invalid_argument);
  EXPECT_EQ(arbiter_.acquire(waiting(whole(3)), look()).status().code(), Code::invalid_argument);
  EXPECT_EQ(arbiter_.acquire(whole(), Machine()).status().code(), Code::unavailable);
}

TEST_F(LeaseTest, AKilledHoldersLeaseIsGone) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = in_child([&] {
    const Lease lease = arbiter_.acquire(whole(2), machine_).value();
    if (write(ready[1], "x", 1) != 1) return 1;
    pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  kill(child, SIGSTOP);  // A stopped holder's memory is still allocated.
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), 128 + SIGKILL);
  EXPECT_EQ(directory_.files(), 1);
  const Result<Lease> lease = arbiter_.acquire(whole(2), machine_);
  EXPECT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(directory_.files(), 1);  // The dead lease's file was removed.
  close(ready[0]), close(ready[1]);
}

// A child that knows nothing of leases must not keep the lease of its dead parent.
TEST_F(LeaseTest, AForkedChildDoesNotHaveIt) {
  int parent_lives[2];
  ASSERT_EQ(pipe(parent_lives), 0);
  int child_lives[2];
  ASSERT_EQ(pipe(child_lives), 0);
  const pid_t parent = in_child([&] {
    Lease lease = arbiter_.acquire(whole(2), machine_).value();
    const pid_t child = in_child([&] {
      if (lease.held()) return 1;
      lease.release();  // Must not remove the parent's file.
      const char fine = 'x';
      if (write(child_lives[1], &fine, 1) != 1) return 2;
      pause();
      return 0;
    });
    return lease.intact() && child > 0 && write(parent_lives[1], &child, sizeof child) == sizeof child
               ? (pause(), 0)
               : 1;
  });
  pid_t child = 0;
  char byte = 0;
  ASSERT_EQ(read(parent_lives[0], &child, sizeof child), ssize_t(sizeof child));
  ASSERT_EQ(read(child_lives[0], &byte, 1), 1);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  kill(parent, SIGKILL);
  wait_for(parent);
  EXPECT_EQ(kill(child, 0), 0);
  EXPECT_TRUE(arbiter_.acquire(whole(2), machine_).ok());
  kill(child, SIGKILL);
  for (const int fd : {parent_lives[0], parent_lives[1], child_lives[0], child_lives[1]}) close(fd);
}

TEST_F(LeaseTest, ChildrenKeepItIfAsked) {
  Lease lease = arbiter_.acquire(whole(2), machine_).value();
  ASSERT_TRUE(lease.share_with_children().ok());
  const pid_t child = in_child([] { return pause(); });
  lease.leave();
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_TRUE(arbiter_.acquire(whole(2), machine_).ok());
}

TEST_F(LeaseTest, ItLivesThroughExecAndIsAdopted) {
  const pid_t job = in_child([&] {
    Lease lease = arbiter_.acquire(whole(2), machine_).value();
    if (!lease.share_through_exec().ok()) return 1;
    execl("/bin/sleep", "sleep", "60", nullptr);
    return 2;
  });
  ASSERT_TRUE(soon([&] {
    char name[64] = {};
    FILE* comm = fopen(("/proc/" + std::to_string(job) + "/comm").c_str(), "r");
    const bool read = comm != nullptr && fgets(name, sizeof name, comm) != nullptr;
    if (comm != nullptr) fclose(comm);
    return read && std::string(name) == "sleep\n";
  }));
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  kill(job, SIGKILL);
  wait_for(job);
  Lease lease = arbiter_.acquire(whole(2), machine_).value();
  // Adopts by the number alone, as the executed program does.
  const int copy = dup(lease.descriptor());
  const std::string id = lease.id();
  lease.leave();
  Lease adopted = arbiter_.adopt(copy).value();
  EXPECT_EQ(adopted.id(), id);
  EXPECT_TRUE(adopted.intact());
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  adopted.release();
  EXPECT_TRUE(arbiter_.acquire(whole(2), machine_).ok());
}

TEST_F(LeaseTest, PassesToAnotherProcessByDescriptor) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const auto message = [](msghdr& header, iovec& part, char* byte, char* control, size_t size) {
    part = {byte, 1};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = size;
  };
  const pid_t child = in_child([&] {
    msghdr header{};
    iovec part{};
    char byte = 0;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    message(header, part, &byte, control, sizeof control);
    if (recvmsg(sockets[1], &header, MSG_CMSG_CLOEXEC) != 1) return 1;
    int fd = -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof fd);
    const Result<Lease> lease = arbiter_.adopt(fd);
    if (!lease.ok()) return 2;
    const auto live = arbiter_.list().value();
    if (live.size() != 1 || live[0].record.process.pid != getpid()) return 3;
    return write(sockets[1], "y", 1) == 1 && read(sockets[1], &byte, 1) == 1 ? 0 : 4;
  });
  Lease lease = arbiter_.acquire(whole(2), machine_).value();
  msghdr header{};
  iovec part{};
  char byte = 'x';
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message(header, part, &byte, control, sizeof control);
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = lease.descriptor();
  memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  ASSERT_EQ(sendmsg(sockets[0], &header, 0), 1);
  lease.leave();
  ASSERT_EQ(read(sockets[0], &byte, 1), 1);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  ASSERT_EQ(write(sockets[0], "z", 1), 1);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_TRUE(arbiter_.acquire(whole(2), machine_).ok());
  close(sockets[0]), close(sockets[1]);
}

TEST_F(LeaseTest, AdoptRefusesWhatIsNoLease) {
  EXPECT_EQ(arbiter_.adopt(987).status().code(), Code::invalid_argument);
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(arbiter_.adopt(file).status().code(), Code::invalid_argument);
  Lease lease = arbiter_.acquire(whole(), machine_).value();
  // Another descriptor of the process is not the lease's.
  const int other = open((directory_.path() + "/l" + lease.id()).c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(arbiter_.adopt(other).status().code(), Code::invalid_argument);
  const int copy = dup(lease.descriptor());
  lease.release();
  EXPECT_EQ(arbiter_.adopt(copy).status().code(), Code::invalid_argument);
}

TEST_F(LeaseTest, GrowsAndShrinksInPlace) {
  Lease lease = arbiter_.acquire(share(GiB(30)), machine_).value();
  const Lease other = arbiter_.acquire(share(GiB(30), 2), machine_).value();
  EXPECT_EQ(arbiter_.resize(lease, GiB(60), machine_).code(), Code::busy);
  EXPECT_EQ(available(0), GiB(20));
  ASSERT_TRUE(arbiter_.resize(lease, GiB(50), machine_).ok());
  EXPECT_EQ(available(0), Bytes(0));
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(arbiter_.resize(lease, GiB(10 + step), machine_).ok());
  EXPECT_EQ(available(0), GiB(36));
  EXPECT_EQ(lease.claims()[0].bytes, GiB(14));
}

TEST_F(LeaseTest, ExpiryEndsALeaseThatIsStillHeld) {
  Request request = whole(2);
  request.expires_after = 2s;
  Lease lease = arbiter_.acquire(request, machine_).value();
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy);
  ASSERT_TRUE(arbiter_.renew(lease, 1h).ok());
  std::this_thread::sleep_for(2100ms);
  EXPECT_EQ(arbiter_.acquire(whole(), machine_).status().code(), Code::busy) << "it was renewed";
  ASSERT_TRUE(arbiter_.renew(lease, 50ms).ok());
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(lease.intact());
  const Lease next = arbiter_.acquire(whole(2), machine_).value();
  EXPECT_EQ(arbiter_.renew(lease, 1s).code(), Code::unavailable);
  lease.release();
  EXPECT_TRUE(next.intact());
}

TEST_F(LeaseTest, APartOfALeaseIsTakenInsideIt) {
  Lease outer = arbiter_.acquire(share(GiB(60)), machine_).value();
  Request part = share(GiB(40));
  part.inside = outer.id();
  Lease inner = arbiter_.acquire(part, machine_).value();
  EXPECT_EQ(inner.uuids(), outer.uuids());
  EXPECT_EQ(available(0), GiB(20));
  EXPECT_EQ(arbiter_.acquire(part, machine_).status().code(), Code::busy);
  EXPECT_EQ(arbiter_.resize(outer, GiB(30), machine_).code(), Code::busy);
  outer.release();
  EXPECT_EQ(available(0), GiB(40));
  EXPECT_EQ(arbiter_.acquire(part, machine_).status().code(), Code::unavailable);
}

TEST_F(LeaseTest, RevokingShowsToTheHolder) {
  Lease lease = arbiter_.acquire(whole(2), machine_).value();
  ASSERT_TRUE(arbiter_.revoke(lease.id()).ok());
  EXPECT_FALSE(lease.intact());
  EXPECT_TRUE(lease.held());
  EXPECT_TRUE(arbiter_.acquire(whole(2), machine_).ok());
  EXPECT_EQ(arbiter_.revoke(lease.id()).code(), Code::unavailable);
  EXPECT_EQ(arbiter_.revoke("../../etc/passwd").code(), Code::invalid_argument);
  EXPECT_EQ(arbiter_.resize(lease, GiB(1), machine_).code(), Code::invalid_argument);
}

TEST_F(LeaseTest, ThreadsExcludeEachOther) {
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  std::atomic<bool> held{false};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        Result<Lease> lease = arbiter_.acquire(whole(2), machine_);
        if (!lease.ok()) continue;
        EXPECT_FALSE(held.exchange(true));
        ++granted;
        held = false;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted, 0);
  EXPECT_EQ(directory_.files(), 0);
}

// ---- The line

TEST_F(LeaseTest, WaitsForARelease) {
  Lease lease = arbiter_.acquire(whole(2), machine_).value();
  std::thread later([&] {
    EXPECT_TRUE(soon([&] { return arbiter_.list().value().size() == 2; }));
    lease.release();
  });
  const Result<Lease> next = arbiter_.acquire(waiting(whole()), look());
  EXPECT_TRUE(next.ok()) << next.status().message();
  later.join();
}

// The timer fires a second after the waiter's last look. On a busy machine the waiter may wake that late, but
// not each time.
TEST_F(LeaseTest, WaitsForADeathLessThanTheTimer) {
  bool woken = false;
  for (int attempt = 0; attempt < 20 && !woken; ++attempt) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = in_child([&] {
      const Lease lease = arbiter_.acquire(whole(2), machine_).value();
      return write(ready[1], "x", 1) == 1 ? pause() : 1;
    });
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    std::chrono::steady_clock::time_point killed;
    std::thread later([&] {
      EXPECT_TRUE(soon([&] { return arbiter_.list().value().size() == 2; }));
      std::this_thread::sleep_for(100ms);
      killed = std::chrono::steady_clock::now();
      kill(child, SIGKILL);
    });
    const Result<Lease> next = arbiter_.acquire(waiting(whole()), look());
    const auto got = std::chrono::steady_clock::now();
    later.join();
    ASSERT_TRUE(next.ok());
    woken = got - killed < 700ms;
    wait_for(child);
    close(ready[0]), close(ready[1]);
  }
  EXPECT_TRUE(woken);
}

TEST_F(LeaseTest, WaitingEndsWithItsLimitAndLeavesTheLine) {
  const Lease lease = arbiter_.acquire(whole(2), machine_).value();
  Request request = waiting(whole());
  request.wait_limit = 150ms;
  const Status status = arbiter_.acquire(request, look()).status();
  EXPECT_EQ(status.code(), Code::busy);
  EXPECT_EQ(status.message().substr(0, 7), "waited ") << status.message();
  EXPECT_EQ(directory_.files(), 1);
  request.wait_limit.reset();
  const Status given_up = arbiter_.acquire(request, look(), [] { return true; }).status();
  EXPECT_EQ(given_up.message().substr(0, 9), "given up ") << given_up.message();
  EXPECT_EQ(directory_.files(), 1);
}

// The arbiter grants in order of arrival, independent of the order in which waiters wake.
TEST_F(LeaseTest, FirstComeFirstServed) {
  machine_ = idle_machine(1);
  Lease lease = arbiter_.acquire(whole(), machine_).value();
  constexpr int kWaiters = 5;
  int order[2];
  ASSERT_EQ(pipe(order), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kWaiters; ++i) {
    children.push_back(in_child([&] {
      const Result<Lease> mine = arbiter_.acquire(waiting(i % 2 == 0 ? whole() : share(GiB(50))), look());
      if (!mine.ok()) return 1;
      const char number = static_cast<char>(i);
      if (write(order[1], &number, 1) != 1) return 2;
      std::this_thread::sleep_for(30ms);
      return 0;
    }));
    ASSERT_TRUE(soon([&] { return arbiter_.list().value().size() == static_cast<size_t>(i) + 2; }));
  }
  // A request that does not wait is not served before the waiters.
  lease.release();
  EXPECT_EQ(arbiter_.acquire(share(GiB(70)), machine_).status().code(), Code::busy);
  for (int i = 0; i < kWaiters; ++i) {
    char number = -1;
    ASSERT_EQ(read(order[0], &number, 1), 1);
    EXPECT_EQ(number, i);
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  close(order[0]), close(order[1]);
}

// Small leases come and go all the time; one that wants all of a GPU gets it nevertheless.
TEST_F(LeaseTest, BigRequestsAreNotStarved) {
  std::vector<pid_t> small;
  for (int i = 0; i < 4; ++i)
    small.push_back(in_child([&] {
      for (;;) {
        Result<Lease> lease = arbiter_.acquire(waiting(share(GiB(30))), look());
        if (!lease.ok()) return 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + 7 * i));
      }
    }));
  ASSERT_TRUE(soon([&] { return available(0) < GiB(80) && available(1) < GiB(80); }));
  Request big = waiting(whole(2));
  big.wait_limit = 20s;
  EXPECT_TRUE(arbiter_.acquire(big, look()).ok());
  for (const pid_t child : small) kill(child, SIGKILL);
  for (const pid_t child : small) wait_for(child);
}

// Other requests may use memory that a place does not need, but not memory that it waits for.
TEST_F(LeaseTest, APlaceKeepsItsGpusAndNoMore) {
  const Lease first = arbiter_.acquire(share(GiB(70)), machine_).value();   // Granted on GPU-1000.
  const Lease second = arbiter_.acquire(share(GiB(40)), machine_).value();  // Granted on GPU-1001.
  const pid_t waiter =
      in_child([&] { return arbiter_.acquire(waiting(share(GiB(60))), look()).ok() ? 0 : 1; });
  ASSERT_TRUE(soon([&] { return arbiter_.list().value().size() == 3; }));
  // The place waits for GPU-1001, which has 40 GiB left; GPU-1000 has 10.
  EXPECT_EQ(arbiter_.acquire(share(GiB(20)), machine_).status().code(), Code::busy);
  EXPECT_EQ(arbiter_.acquire(share(GiB(10)), machine_).value().uuids(), "GPU-1000");
  // One that died or was stopped waiting keeps nothing. It is not to be stopped with the directory's lock in
  // its hand.
  const int lock = open((directory_.path() + "/" + kLockName).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  kill(waiter, SIGSTOP);
  ASSERT_EQ(waitpid(waiter, nullptr, WUNTRACED), waiter);
  close(lock);
  const std::string name = [&] {
    const std::vector<Entry> live = arbiter_.list().value();
    for (const Entry& entry : live)
      if (entry.record.kind == Kind::waiting) return "l" + entry.id;
    return std::string();
  }();
  const timespec old[2] = {{0, UTIME_OMIT}, {time(nullptr) - 6, 0}};
  ASSERT_EQ(utimensat(directory_.directory()->fd(), name.c_str(), old, 0), 0);
  EXPECT_TRUE(arbiter_.acquire(share(GiB(20)), machine_).ok());
  kill(waiter, SIGCONT);
  EXPECT_TRUE(soon([&] { return !arbiter_.acquire(share(GiB(20)), machine_).ok(); }));
  kill(waiter, SIGKILL);
  wait_for(waiter);
  EXPECT_TRUE(arbiter_.acquire(share(GiB(20)), machine_).ok());
}

// ---- The directory and the lock

TEST_F(LeaseTest, ALockHeldTooLongIsReportedWithItsHolder) {
  { const Lease lease = arbiter_.acquire(whole(), machine_).value(); }
  const int fd = open((directory_.path() + "/" + kLockName).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  arbiter_.set_lock_limit(50ms);
  const Status status = arbiter_.acquire(whole(), machine_).status();
  EXPECT_EQ(status.code(), Code::busy);
  EXPECT_NE(status.message().find("by pid " + std::to_string(getpid())), std::string::npos)
      << status.message();
  close(fd);
  EXPECT_TRUE(arbiter_.acquire(whole(), machine_).ok());
}

TEST_F(LeaseTest, TheDirectoryIsOpenToAllAndSticky) {
  struct stat about {};
  ASSERT_EQ(stat(directory_.path().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 01777U);
  const Lease lease = arbiter_.acquire(whole(), machine_).value();
  ASSERT_EQ(stat((directory_.path() + "/" + kLockName).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0444U);
  ASSERT_EQ(stat((directory_.path() + "/l" + lease.id()).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0644U);
}

TEST_F(LeaseTest, DirectoriesAreFoundInOrder) {
  const std::string base = directory_.path() + "-x";
  ASSERT_EQ(mkdir(base.c_str(), 0777), 0);
  const std::string a = base + "/a", b = base + "/b";
  // The first directory that can be made.
  EXPECT_EQ(Directory::open_best({base + "/none/a", b}).value()->path(), b);
  EXPECT_EQ(Directory::open_best({a, b}).value()->path(), b);  // An existing directory comes first.
  ASSERT_EQ(mkdir(a.c_str(), 0777), 0);
  ASSERT_EQ(chmod(a.c_str(), 0777), 0);
  EXPECT_NE(Directory::open(a).status().message().find("chmod +t"), std::string::npos);
  ASSERT_EQ(chmod(a.c_str(), 01777), 0);
  EXPECT_EQ(Directory::open_best({a, b}).value()->path(), geteuid() == 0 ? a : b);
  ASSERT_EQ(symlink(b.c_str(), (base + "/link").c_str()), 0);
  EXPECT_FALSE(Directory::open(base + "/link").ok());
}

}  // namespace
}  // namespace innkeeper::lease
