// Jobs that end unobserved, because all processes were killed at once or the machine restarted. Each reader
// of the queue learns of the end, and waiting jobs go on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/clock.h"
#include "lease/process.h"
#include "queue/life.h"
#include "queue/scheduler.h"
#include "support/queue_fixture.h"

namespace innkeeper::queue {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kSecond = 1'000'000'000;

class InterruptedJobsTest : public QueueFixture {
 protected:
  // Stops the supervisor, its keeper and all processes of its job: none of them starts another any more.
  std::vector<pid_t> stopped(JobId running) {
    std::vector<pid_t> all;
    if (!soon([&] { return supervisor(running) > 0 && !lease::descendants(supervisor(running)).empty(); }))
      return all;
    all.push_back(static_cast<pid_t>(lease::process_line(supervisor(running)).at(1).pid));
    EXPECT_EQ(kill(all[0], SIGSTOP), 0);
    for (size_t before = 0; before != all.size();) {
      before = all.size();
      for (const lease::Descendant& each : lease::descendants(all[0])) {
        const auto pid = static_cast<pid_t>(each.process.pid);
        if (std::find(all.begin(), all.end(), pid) != all.end()) continue;
        EXPECT_EQ(kill(pid, SIGSTOP), 0);
        all.push_back(pid);
      }
    }
    return all;
  }
  // Kills all of them, as the machine's end would.
  void kill_all(JobId running) {
    const std::vector<pid_t> job = stopped(running);
    ASSERT_GT(job.size(), 2U);
    const pid_t runner = outer_.runner();
    const auto line = lease::process_line(runner);
    ASSERT_GT(line.size(), 1U);
    std::vector<pid_t> all = {static_cast<pid_t>(line[1].pid), runner};  // The runner's watcher comes first.
    // Children come first: the kernel wakes and ends stopped processes of a group that lost its parents'
    // session.
    all.insert(all.end(), job.rbegin(), job.rend());
    for (const pid_t pid : all) EXPECT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_TRUE(soon([&] { return !look(directory_->life(running, 1)).alive && !queue_.runner_alive(); }));
  }
  // A job that a runner of the given boot began, and that left no end.
  JobId began(Store& store, const std::string& boot) {
    JobSpec job = shell("true");
    job.directory = "/";
    const JobId id = good(store.add(job))[0];
    EXPECT_TRUE(good(store.claim(id, 1, "", boot)));
    const lease::OpenFile life = good(begin_life(directory_->life(id, 1)));
    EXPECT_TRUE(write_began(life.fd(), {{1, 1}}));
    return id;
  }
  static std::string this_boot() {
    lease::Record record;
    lease::sign(record);
    return record.boot_id;
  }
  // Sets the file's time this number of seconds back.
  static int64_t age(const std::string& path, int64_t seconds) {
    const int64_t then = wall_clock_ns() / kSecond - seconds;
    const timespec times[2] = {{then, 0}, {then, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return then * kSecond;
  }
};

TEST_F(InterruptedJobsTest, AListingReportsAndStoresIt) {
  const JobId id = add(shell("sleep 60"));
  kill_all(id);
  Store store = this->store();
  EXPECT_EQ(good(store.line(id)).state, State::running) << "nobody has looked";
  EXPECT_EQ(good(queue_.list()).at(0).state, State::interrupted);
  EXPECT_EQ(good(store.line(id)).state, State::interrupted);
  EXPECT_EQ(good(queue_.show(id)).reason, "nobody saw it end: its supervisor was killed");
}

TEST_F(InterruptedJobsTest, ShowReportsIt) {
  const JobId id = add(shell("sleep 60"));
  kill_all(id);
  EXPECT_EQ(good(queue_.show(id)).state, State::interrupted);
  EXPECT_EQ(good(store().line(id)).state, State::interrupted);
}

TEST_F(InterruptedJobsTest, AListingOfEndedJobsReportsIt) {
  const JobId id = add(shell("sleep 60"));
  kill_all(id);
  const auto ended = good(queue_.ended_last(5));
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, id);
}

TEST_F(InterruptedJobsTest, ReadingLetsWaitingJobsProceed) {
  ASSERT_TRUE(queue_.set_cpu_slots(1).ok());
  const JobId id = add(shell("sleep 60"));
  ASSERT_TRUE(soon([&] { return supervisor(id) > 0; }));
  const JobId waits = add(shell("true"));
  kill_all(id);
  good(queue_.list());
  Store store = this->store();  // Opening a store starts no runner.
  EXPECT_TRUE(soon([&] { return good(store.line(waits)).state == State::done; }));
}

TEST_F(InterruptedJobsTest, APausedQueueSaysSoToo) {
  const JobId id = add(shell("sleep 60"));
  ASSERT_TRUE(soon([&] { return supervisor(id) > 0; }));
  ASSERT_TRUE(queue_.pause_all().ok());
  const JobId waits = add(shell("true"));
  kill_all(id);
  const auto lines = good(queue_.list());
  EXPECT_EQ(lines.at(0).state, State::interrupted);
  EXPECT_EQ(lines.at(1).state, State::queued);
  EXPECT_TRUE(soon([&] { return !queue_.runner_alive(); }));
  EXPECT_EQ(good(queue_.show(waits)).state, State::queued);
}

// The life files show the end even where no process can record it.
TEST_F(InterruptedJobsTest, ItIsSoWhereNoRunnerCanBeStarted) {
  const JobId id = add(shell("sleep 60"));
  kill_all(id);
  {
    Store store = this->store();
    const JobId ended = began(store, this_boot());
    const lease::OpenFile life([&] { return open(directory_->life(ended, 1).c_str(), O_RDWR | O_CLOEXEC); });
    Ending three;
    three.how = How::exited;
    three.code = 3;
    ASSERT_TRUE(write_ended(life.fd(), three));
    Queue helpless = good(Queue::open(directory_->path(), {{"/no/such/runner"}}));
    const auto lines = good(helpless.list());
    EXPECT_EQ(lines.at(0).state, State::interrupted);
    EXPECT_EQ(lines.at(1).state, State::failed);
    EXPECT_EQ(lines.at(1).code, 3);
    EXPECT_EQ(good(helpless.show(id)).state, State::interrupted);
    EXPECT_EQ(good(store.line(id)).state, State::running);
  }
  EXPECT_EQ(good(queue_.list()).at(1).state, State::failed);
}

TEST_F(InterruptedJobsTest, ARestartOfTheMachineIsNamed) {
  Store store = this->store();
  const JobId id = began(store, "another boot");
  EXPECT_EQ(good(queue_.list()).at(0).state, State::interrupted);
  EXPECT_EQ(good(queue_.show(id)).reason, "nobody saw it end: the machine was restarted while it ran");
}

TEST_F(InterruptedJobsTest, WhatIsKnownOfItsProgramIsSaid) {
  Store store = this->store();
  const JobId id = began(store, this_boot());
  const lease::OpenFile life([&] { return open(directory_->life(id, 1).c_str(), O_RDWR | O_CLOEXEC); });
  Left left;
  left.program.how = How::signalled;
  left.program.code = 9;
  left.count = 2;
  left.name = "python";
  ASSERT_TRUE(write_left(life.fd(), left));
  EXPECT_EQ(good(queue_.list()).at(0).state, State::interrupted);
  EXPECT_EQ(good(queue_.show(id)).reason,
            "nobody saw it end: its supervisor was killed; its program had ended (signal 9), what that left "
            "had not");
}

// The job's last sign of life is the last time at which it certainly lived.
TEST_F(InterruptedJobsTest, ItsEndIsItsLastSignOfLife) {
  Store store = this->store();
  const JobId written = began(store, "another boot"), touched = began(store, "another boot"),
              silent = began(store, "another boot"), future = began(store, "another boot");
  const int64_t now = wall_clock_ns();
  for (const JobId id : {written, touched, silent, future}) {
    test::spit(directory_->output(id, 1), "");
    age(directory_->output(id, 1), 9000);
    age(directory_->life(id, 1), 9000);
  }
  age(directory_->output(written, 1), -2);  // The jobs began just now, so signs of life are in the future.
  age(directory_->life(touched, 1), -3);
  age(directory_->life(future, 1), -9000);
  std::this_thread::sleep_for(3500ms);
  good(queue_.list());
  const auto ended = [&](JobId id) { return good(store.line(id)).ended_ns; };
  EXPECT_NEAR(static_cast<double>(ended(written) - now), 2e9, 1.1e9);
  EXPECT_NEAR(static_cast<double>(ended(touched) - now), 3e9, 1.1e9);
  EXPECT_EQ(ended(silent), good(store.line(silent)).started_ns);
  EXPECT_LE(ended(future), wall_clock_ns()) << "a clock that was wrong";
}

TEST_F(InterruptedJobsTest, TheSupervisorGivesSignsOfLife) {
  const JobId id = add(shell("while [ ! -e " + path("go") + " ]; do sleep 0.02; done"));
  ASSERT_TRUE(soon([&] { return supervisor(id) > 0; }));
  const int64_t before = age(directory_->life(id, 1), 9000);
  EXPECT_TRUE(soon([&] {
    struct stat about {};
    return stat(directory_->life(id, 1).c_str(), &about) == 0 && about.st_mtim.tv_sec * kSecond > before;
  }));
  test::spit(path("go"), "");
  EXPECT_EQ(good(queue_.wait({id}, 30'000ms)).at(0).state, State::done);
}

// A job whose end the runner noticed ended then, even after a long silence.
TEST_F(InterruptedJobsTest, WhatARunnerSeesVanishEndsThen) {
  const JobId id = add(shell("sleep 60"));
  const std::vector<pid_t> job = stopped(id);
  ASSERT_GT(job.size(), 1U);
  std::this_thread::sleep_for(1500ms);
  age(directory_->life(id, 1), 9000);
  const int64_t before = wall_clock_ns();
  for (const pid_t pid : job) kill(pid, SIGKILL);
  Store store = this->store();
  ASSERT_TRUE(soon([&] { return good(store.line(id)).state == State::interrupted; }));
  EXPECT_GE(good(store.line(id)).ended_ns, before);
}

// An interrupted job has ended like others: dependent jobs and its user learn of it, and pruning may forget
// it.
TEST_F(InterruptedJobsTest, ItIsAnEndLikeOthers) {
  JobSpec told = shell("sleep 60"), strict = shell("true"), any = shell("true");
  told.notify =
      "echo $INNKEEPER_JOB_STATE > " + path("told.tmp") + "; mv " + path("told.tmp") + " " + path("told");
  const JobId id = add(told);
  strict.after = {{id}};
  any.after = {{id, true}};
  const JobId never = add(strict), always = add(any);
  kill_all(id);
  good(queue_.list());
  EXPECT_EQ(good(queue_.show(never)).state, State::cancelled);
  EXPECT_EQ(good(queue_.wait({always}, 30'000ms)).at(0).state, State::done);
  EXPECT_TRUE(soon([&] { return content(path("told")) == "interrupted\n"; }));
  EXPECT_EQ(good(queue_.prune({.age = std::nullopt, .jobs = 0})).jobs, 3);
}

TEST_F(InterruptedJobsTest, ReadingStartsNoRunnerWhereThereIsNothingToDo) {
  JobSpec job = shell("true");
  ASSERT_TRUE(queue_.pause_all().ok());
  const JobId id = add(job);
  good(queue_.list());
  good(queue_.show(id));
  EXPECT_FALSE(queue_.runner_alive());
  EXPECT_FALSE(std::filesystem::exists(directory_->runner_log())) << "none has ever been";
}

}  // namespace
}  // namespace innkeeper::queue
