// Guards of the queue that a test must provoke: each test here fails when its guard is removed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "lease/kill_point.h"
#include "lease/process.h"
#include "queue/life.h"
#include "queue/scheduler.h"
#include "support/environment.h"
#include "support/queue_fixture.h"

namespace {
std::atomic<int> disk_waits{0};  // Number of this program's waits for the disk.
}

// Replaces libc's function.
extern "C" int fdatasync(int fd) {
  ++disk_waits;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}
extern "C" int fsync(int fd) {
  ++disk_waits;
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace innkeeper::queue {
namespace {

using namespace std::chrono_literals;

class GuardTest : public QueueFixture {
 protected:
  pid_t watcher() const {  // Process number of the runner's parent.
    const std::string stat = content("/proc/" + std::to_string(outer_.runner()) + "/stat");
    const size_t name = stat.rfind(')');
    return name == std::string::npos ? 0 : std::atoi(stat.c_str() + name + 4);
  }
  void kill_runner_and_watcher() const {
    const pid_t runner = outer_.runner(), parent = watcher();
    ASSERT_GT(parent, 1);
    ASSERT_EQ(kill(parent, SIGKILL), 0);
    ASSERT_EQ(kill(runner, SIGKILL), 0);
    ASSERT_TRUE(soon([&] { return outer_.runner() == 0; })) << "until it is dead it has its lock";
  }
  // A child that is killed at this step of adding a job.
  void add_and_die(const char* step) const {
    static const char* at;
    at = step;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Store mine = store();
      lease::kill_point = [](const char* name) {
        if (std::string_view(name) == at) raise(SIGKILL);
      };
      JobSpec many = spec();
      many.indices = {1, 2, 3};
      (void)mine.add(many);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the step was never reached";
  }
};

TEST_F(GuardTest, AJobIsAddedWholeOrNotAtAll) {
  add_and_die("before add commit");
  EXPECT_TRUE(good(queue_.list()).empty());
  add_and_die("added");
  EXPECT_EQ(good(queue_.list()).size(), 3U);
}

TEST_F(GuardTest, WhatIsHeldOrWaitsIsNotClaimed) {
  Store store = this->store();
  const JobId held = good(store.add(spec()))[0];
  ASSERT_TRUE(store.hold({held}, true).ok());
  EXPECT_FALSE(good(store.claim(held, 1, "", "boot")));
  JobSpec job = spec();
  job.after = {{held}};
  const JobId waits = good(store.add(job))[0];
  EXPECT_FALSE(good(store.claim(waits, 1, "", "boot")));
  ASSERT_TRUE(store.hold({held}, false).ok());
  EXPECT_TRUE(good(store.claim(held, 1, "", "boot")));
}

// The runner may have read the setting before the pause, and the queue after it.
TEST_F(GuardTest, NothingIsClaimedInAPausedQueue) {
  Store store = this->store();
  const JobId id = good(store.add(spec()))[0];
  ASSERT_TRUE(store.set(kPausedSetting, 1).ok());
  EXPECT_FALSE(good(store.claim(id, 1, "", "boot")));
  EXPECT_EQ(good(store.line(id)).state, State::queued);
  ASSERT_TRUE(store.set(kPausedSetting, 0).ok());
  EXPECT_TRUE(good(store.claim(id, 1, "", "boot")));
}

TEST_F(GuardTest, WhatWasTakenBackLeavesNoAttemptAndObeysItsUser) {
  Store store = this->store();
  const JobId id = good(store.add(spec()))[0];
  ASSERT_TRUE(good(store.claim(id, 1, "", "boot")));
  ASSERT_TRUE(store.take_back(id, 1).ok());
  EXPECT_TRUE(good(store.get(id)).attempts.empty());
  ASSERT_TRUE(good(store.claim(id, 2, "", "boot")));
  good(store.cancel({id}));
  ASSERT_TRUE(store.take_back(id, 2).ok());
  EXPECT_EQ(good(store.line(id)).state, State::cancelled);
}

// The runner's decisions are on the disk before it acts; a caller that adds a job does not wait for the disk.
TEST_F(GuardTest, TheRunnerWaitsForTheDiskAndCallersDoNot) {
  Store runner = store(Durable::power), caller = store();
  const JobId id = good(caller.add(spec()))[0];
  disk_waits = 0;
  good(caller.add(spec()));
  EXPECT_EQ(disk_waits, 0);
  ASSERT_TRUE(good(runner.claim(id, 1, "", "boot")));
  EXPECT_GE(disk_waits, 1) << "a claim";
  disk_waits = 0;
  Ending ending;
  ending.how = How::exited;
  good(runner.finish(id, 1, ending));
  EXPECT_GE(disk_waits, 1) << "an end";
  const lease::OpenFile life = good(begin_life(directory_->life(id, 1)));
  disk_waits = 0;
  ASSERT_TRUE(write_ended(life.fd(), ending));
  EXPECT_GE(disk_waits, 1) << "an end in the life file";
}

// A process that has the number of a dead supervisor by now is not the queue's to end.
TEST_F(GuardTest, OnlyTheSupervisorItselfIsSignalled) {
  const pid_t stranger = fork();
  if (stranger == 0) {
    for (;;) pause();
  }
  const auto line = lease::process_line(stranger);
  ASSERT_FALSE(line.empty());
  const std::string path = directory_->life(1, 1);
  {
    const lease::OpenFile life = good(begin_life(path));
    ASSERT_TRUE(write_began(life.fd(), {{stranger, line[0].start_ticks + 1}}));
    EXPECT_FALSE(signal_supervisor(path, SIGKILL)) << "started at another time";
    ASSERT_TRUE(write_began(life.fd(), {line[0]}));
    EXPECT_TRUE(signal_supervisor(path, SIGURG));
    ASSERT_TRUE(write_ended(life.fd(), {}));
    EXPECT_FALSE(signal_supervisor(path, SIGKILL)) << "it has ended";
  }
  unlink(path.c_str());
  {
    const lease::OpenFile life = good(begin_life(path));
    ASSERT_TRUE(write_began(life.fd(), {line[0]}));
  }
  EXPECT_FALSE(signal_supervisor(path, SIGKILL)) << "nobody holds its lock";
  int status = 0;
  EXPECT_EQ(waitpid(stranger, &status, WNOHANG), 0) << "it lives";
  kill(stranger, SIGKILL);
  waitpid(stranger, &status, 0);
}

// After a power cut a file may lack data that was written. So an attempt of another boot that has not "begun"
// may have run.
TEST_F(GuardTest, AMissingBeginningIsBelievedWithinItsBootOnly) {
  lease::Record record;
  lease::sign(record);
  Store store = this->store();
  const JobId before = good(store.add(spec()))[0], now = good(store.add(spec()))[0],
              gone = good(store.add(spec()))[0];
  ASSERT_TRUE(good(store.claim(before, 1, "", "another boot")));
  for (const JobId id : {now, gone}) ASSERT_TRUE(good(store.claim(id, 1, "", record.boot_id)));
  ASSERT_TRUE(queue_.pause_all().ok());  // The pass below starts no job.
  for (const JobId id : {before, now}) good(begin_life(directory_->life(id, 1)));
  const Program program = test::queue_runner();
  Scheduler scheduler(*directory_, program, this->store());
  ASSERT_TRUE(scheduler.pass().ok());
  EXPECT_EQ(good(store.line(before)).state, State::interrupted);
  EXPECT_EQ(good(store.line(now)).state, State::queued);
  EXPECT_EQ(good(store.line(gone)).state, State::interrupted) << "somebody has removed its file";
  EXPECT_TRUE(std::filesystem::is_empty(directory_->life_directory()));
}

TEST_F(GuardTest, WhatAKilledRunnerLeftIsRemovedAndWhatLivesIsNot) {
  Store store = this->store();
  const JobId runs = good(store.add(spec()))[0];
  ASSERT_TRUE(good(store.claim(runs, 1, "", "boot")));
  good(begin_life(directory_->life(runs, 1)));
  good(begin_life(directory_->life(77, 1)));
  const lease::OpenFile alive = good(begin_life(directory_->life(78, 1)));
  const Program program = test::queue_runner();
  ASSERT_TRUE(Scheduler(*directory_, program, this->store()).clear_leftovers().ok());
  EXPECT_TRUE(look(directory_->life(runs, 1)).present);
  EXPECT_FALSE(look(directory_->life(77, 1)).present);
  EXPECT_TRUE(look(directory_->life(78, 1)).present);
}

// A runner that has begun to leave sees a job that was added while it still had its lock.
TEST_F(GuardTest, ARunnerThatLeavesLooksOnceMore) {
  {
    test::Environment first_runner;
    first_runner.set("INNKEEPER_WAIT_STEP", "runner idle");
    first_runner.set("INNKEEPER_WAIT_FILE", path("idle"));
    good(queue_.wait({add(shell("true"))}, kLong));
    ASSERT_TRUE(soon([&] { return std::filesystem::exists(path("idle")); }));
  }
  const pid_t runner = outer_.runner();
  ASSERT_GT(runner, 0);
  const JobId id = add(shell("true"));  // There is a runner, so this starts none.
  EXPECT_EQ(outer_.runner(), runner);
  std::filesystem::remove(path("idle"));
  Store store = this->store();  // Opening a store starts no runner either.
  EXPECT_TRUE(soon([&] { return good(store.line(id)).state == State::done; }));
}

// Two runners would start a job twice, if no other guard prevented it.
TEST_F(GuardTest, ThereIsOneRunner) {
  const JobId id = add(shell("while [ ! -e " + path("go") + " ]; do sleep 0.02; done"));
  ASSERT_TRUE(soon([&] { return good(queue_.show(id)).state == State::running; }));
  const pid_t runner = outer_.runner();
  ASSERT_GT(runner, 0);
  const std::string command = test::queue_runner().words[0] + " " + directory_->path();
  EXPECT_EQ(std::system(command.c_str()), 0) << "there is one, which is well";
  EXPECT_EQ(content(directory_->runner_lock()), std::to_string(runner) + "\n");
  EXPECT_EQ(outer_.runner(), runner);
  test::spit(path("go"), "");
}

// A user removes the lock file: another runner would find no lock, so the first must stop.
TEST_F(GuardTest, ARunnerWhoseLockWasRemovedGivesWay) {
  const JobId id = add(shell("while [ ! -e " + path("go") + " ]; do sleep 0.02; done"));
  ASSERT_TRUE(soon([&] { return good(queue_.show(id)).state == State::running; }));
  const pid_t first = outer_.runner();
  ASSERT_GT(first, 0);
  std::filesystem::remove(directory_->runner_lock());
  directory_->wake();
  EXPECT_TRUE(soon([&] {
    const pid_t now = outer_.runner();
    return now > 0 && now != first && kill(first, 0) != 0;
  }));
  test::spit(path("go"), "");
  EXPECT_EQ(good(queue_.wait({id}, kLong))[0].state, State::done);
}

TEST_F(GuardTest, TheWatcherReplacesAKilledRunner) {
  const JobId id = add(shell("while [ ! -e " + path("go") + " ]; do sleep 0.02; done"));
  ASSERT_TRUE(soon([&] { return look(directory_->life(id, 1)).began.has_value(); }));
  const pid_t supervisor = static_cast<pid_t>(look(directory_->life(id, 1)).began->supervisor.pid);
  ASSERT_EQ(kill(supervisor, SIGSTOP), 0);  // The supervisor would start a runner too.
  const pid_t before = outer_.runner();
  ASSERT_TRUE(outer_.kill_runner());
  EXPECT_TRUE(soon([&] { return outer_.runner() > 0 && outer_.runner() != before; }));
  kill(supervisor, SIGCONT);
  test::spit(path("go"), "");
  EXPECT_EQ(good(queue_.wait({id}, kLong))[0].state, State::done);
}

// The runner and its watcher are killed: a waiting caller replaces them, and so does a job that ends without
// a runner.
TEST_F(GuardTest, TheNextCommandReplacesAKilledRunner) {
  const JobId id = add(shell("while [ ! -e " + path("go") + " ]; do sleep 0.02; done"));
  ASSERT_TRUE(soon([&] { return look(directory_->life(id, 1)).began.has_value(); }));
  kill_runner_and_watcher();
  test::spit(path("go"), "");
  Store store = this->store();
  EXPECT_TRUE(soon([&] { return good(store.line(id)).state == State::done; })) << "its supervisor";

  ASSERT_TRUE(soon([&] { return outer_.runner() == 0; }));
  ASSERT_TRUE(store.set(kPausedSetting, 1).ok());
  const JobId next = add(shell("true"));
  ASSERT_TRUE(store.set(kPausedSetting, 0).ok());  // Setting this through the store starts no runner.
  EXPECT_EQ(good(queue_.wait({next}, kLong))[0].state, State::done) << "who waits";
}

TEST_F(GuardTest, TheWholeGroupIsToldBeforeItIsKilled) {
  // A child that saves its work on SIGTERM, and a job that waits for it.
  const JobId id = add(shell("trap : TERM; (trap 'echo saved > " + path("saved") + "; exit' TERM; touch " +
                             path("up") + "; while :; do sleep 0.02; done) & wait; wait; exit 1"));
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(path("up")); }));
  ASSERT_TRUE(queue_.cancel({id}).ok());
  EXPECT_EQ(good(queue_.wait({id}, kLong))[0].how, How::stopped);
  EXPECT_EQ(content(path("saved")), "saved\n");
}

TEST_F(GuardTest, WhatIsLeftOfAGroupIsKilledWithIt) {
  // The job obeys, its child does not.
  JobSpec job = shell("(trap '' TERM; touch " + path("up") + "; exec sleep 100) & echo $! > " +
                      path("child") + "; wait");
  job.grace = 300ms;
  const JobId id = add(job);
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(path("up")) && !content(path("child")).empty(); }));
  ASSERT_TRUE(queue_.cancel({id}).ok());
  EXPECT_EQ(good(queue_.wait({id}, kLong))[0].how, How::stopped);
  const std::string child = content(path("child"));
  ASSERT_GT(std::atoi(child.c_str()), 1);
  EXPECT_NE(kill(std::atoi(child.c_str()), 0), 0) << "the job has ended, and it has not";
}

// A pause takes nothing of a job's time limit.
TEST_F(GuardTest, TheTimeLimitStopsWhileAJobIsPaused) {
  JobSpec job = shell("echo up; while [ ! -e " + path("go") + " ]; do sleep 0.02; done");
  job.time_limit = 6s;  // Long enough for all but the pause, on a busy machine too.
  const JobId id = add(job);
  ASSERT_TRUE(soon([&] { return content(good(queue_.log_path(id))) == "up\n"; }));
  ASSERT_TRUE(queue_.pause({id}).ok());
  std::this_thread::sleep_for(6100ms);
  test::spit(path("go"), "");  // Lets the job end as soon as it goes on.
  ASSERT_TRUE(queue_.resume({id}).ok());
  EXPECT_EQ(good(queue_.wait({id}, kLong))[0].state, State::done);
}

// A new runner's signal to go on and a signal to stop may both be pending when the supervisor runs next; the
// kernel delivers the stop first.
TEST_F(GuardTest, APauseIsNotLostWhereTheSupervisorIsSlow) {
  const JobId id = add(shell("exec sleep 200"));
  ASSERT_TRUE(soon([&] { return look(directory_->life(id, 1)).began.has_value(); }));
  const auto supervisor = static_cast<pid_t>(look(directory_->life(id, 1)).began->supervisor.pid);
  const std::string process = "/proc/" + std::to_string(supervisor);
  ASSERT_EQ(kill(supervisor, SIGSTOP), 0);
  const auto pending = [&](int signal) {
    const std::string status = content(process + "/status"), field = "ShdPnd:";
    return std::strtoull(status.c_str() + status.find(field) + field.size(), nullptr, 16) >> (signal - 1) & 1;
  };
  const auto stopped = [&] {
    const std::string child = content(process + "/task/" + std::to_string(supervisor) + "/children");
    return content("/proc/" + child.substr(0, child.find(' ')) + "/stat").find(") T ") != std::string::npos;
  };
  ASSERT_TRUE(outer_.kill_runner());
  ASSERT_TRUE(soon([&] { return pending(SIGUSR2); }));
  ASSERT_TRUE(queue_.pause({id}).ok());
  ASSERT_TRUE(soon([&] { return pending(SIGUSR1); }));
  kill(supervisor, SIGCONT);
  EXPECT_TRUE(soon(stopped));
  ASSERT_TRUE(queue_.resume({id}).ok());
  EXPECT_TRUE(soon([&] { return !stopped(); }));
}

// Jobs that a killed runner started still occupy slots in the next runner.
TEST_F(GuardTest, SlotsCountWhatAnotherRunnerStarted) {
  ASSERT_TRUE(queue_.set_cpu_slots(1).ok());
  const JobId first = add(shell("while [ ! -e " + path("go") + " ]; do sleep 0.02; done"));
  ASSERT_TRUE(soon([&] { return good(queue_.show(first)).state == State::running; }));
  const JobId second = add(shell("test -e " + path("go")));
  const pid_t before = outer_.runner();
  ASSERT_TRUE(outer_.kill_runner());
  ASSERT_TRUE(soon([&] { return outer_.runner() > 0 && outer_.runner() != before; }));
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(good(queue_.show(second)).state, State::queued);
  test::spit(path("go"), "");
  EXPECT_EQ(good(queue_.wait({second}, kLong))[0].state, State::done);
}

TEST_F(GuardTest, AnotherUsersDirectoryIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "other users can be tried only by root";
  std::filesystem::create_directory(path("theirs"));
  ASSERT_EQ(chown(path("theirs").c_str(), 12345, 12345), 0);
  const auto opened = QueueDirectory::open(path("theirs"));
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("belongs to somebody else (uid 12345)"), std::string::npos);
}

}  // namespace
}  // namespace innkeeper::queue
