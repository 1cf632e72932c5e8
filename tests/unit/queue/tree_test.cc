// A job consists of all of its processes: those in sessions of their own, orphans, and those that fork while
// the queue ends them. It ends with its last process, and none runs when the queue reports the end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lease/process.h"
#include "queue/life.h"
#include "support/queue_fixture.h"

namespace innkeeper::queue {
namespace {

using namespace std::chrono_literals;

class TreeTest : public QueueFixture {
 protected:
  JobLine line(JobId id) { return good(queue_.show(id)); }
  // Number that a process of a job wrote into the file; 0: none yet.
  pid_t number(const char* name) const { return std::atoi(content(path(name)).c_str()); }
  bool written(const char* name) {
    return soon([&] { return number(name) > 1; });
  }
  // True if the process has ended and the supervisor has reaped it.
  static bool gone(pid_t pid) { return pid > 1 && kill(pid, 0) != 0 && errno == ESRCH; }
  // Shell text that runs `body` in a session of its own without waiting for it; the process writes its number
  // to the file.
  std::string session(const char* name, const std::string& body) const {
    return "setsid sh -c 'echo $$ > " + path(name) + "; " + body + "' & ";
  }
  // Loops that run until a signal kills them; the first ignores SIGTERM.
  static constexpr const char* kDeaf = "trap \"\" TERM; while :; do sleep 0.05; done";
  static constexpr const char* kWait = "while :; do sleep 0.05; done";
};

TEST_F(TreeTest, CancelEndsSessionsOfTheirOwn) {
  // Like torchrun's workers: each is a session that ignores SIGTERM, and one of them is orphaned.
  JobSpec job = shell(session("one", kDeaf) + "(" + session("two", kDeaf) + ") ; " + kWait);
  job.grace = 500ms;
  const JobId id = add(job);
  ASSERT_TRUE(written("one") && written("two"));
  ASSERT_TRUE(queue_.cancel({id}).ok());
  EXPECT_EQ(wait(id).state, State::cancelled);
  EXPECT_TRUE(gone(number("one")));
  EXPECT_TRUE(gone(number("two")));
}

TEST_F(TreeTest, TheTimeLimitEndsThemToo) {
  JobSpec job = shell(session("one", kDeaf) + kWait);
  job.time_limit = 500ms;
  job.grace = 300ms;
  const JobLine over = wait(add(job));
  EXPECT_EQ(over.how, How::time_limit);
  EXPECT_TRUE(gone(number("one")));
}

// Each process gets SIGTERM and its grace. None is killed before the grace is over, whenever the job's
// program ends.
TEST_F(TreeTest, EachHasTheWholeGrace) {
  JobSpec job = shell(
      session("one", "trap \"sleep 1; echo saved > " + path("saved") + "; exit\" TERM; " + kWait) + kWait);
  job.grace = 20s;
  const JobId id = add(job);
  ASSERT_TRUE(written("one"));
  ASSERT_TRUE(queue_.cancel({id}).ok());
  const JobLine over = wait(id);
  EXPECT_EQ(over.state, State::cancelled);
  EXPECT_EQ(content(path("saved")), "saved\n");
  EXPECT_LT(over.ended_ns - over.started_ns, std::chrono::nanoseconds(15s).count()) << "it waits for nobody";
}

// Many idle processes, so that a search through all of them takes a while.
class Crowd {
 public:
  explicit Crowd(int count) : leader_(fork()) {
    if (leader_ > 0) return;
    setpgid(0, 0);
    while (count-- > 0 && fork() != 0) {
    }
    for (;;) pause();
  }
  ~Crowd() {
    kill(-leader_, SIGKILL);
    waitpid(leader_, nullptr, 0);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  const pid_t leader_;
};

// The process forks thousands of times a second: its number has changed before the search for it ends.
TEST_F(TreeTest, WhatForksWhileItIsKilledIsEnded) {
  const Crowd crowd(2000);
  const std::string hop = test::queue_runner().words[0] + " --hop " + path("hops");
  JobSpec job = shell("setsid " + hop + " & " + session("one", kDeaf) + kWait);
  job.grace = 100ms;
  const JobId id = add(job);
  ASSERT_TRUE(soon([&] { return content(path("hops")).size() > 40; }));
  ASSERT_TRUE(queue_.cancel({id}).ok());
  EXPECT_EQ(wait(id).state, State::cancelled);
  const std::string hops = content(path("hops"));
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(content(path("hops")), hops) << "it goes on";
}

TEST_F(TreeTest, APauseStopsSessionsOfTheirOwn) {
  // Without children: a shell whose child is stopped before its exec() waits in vfork(), and never shows as
  // stopped.
  const JobId id = add(shell(session("one", "exec sleep 1000") + kWait));
  ASSERT_TRUE(written("one"));
  const auto stopped = [&] {
    const std::string stat = content("/proc/" + std::to_string(number("one")) + "/stat");
    return stat.find(") T ") != std::string::npos;
  };
  ASSERT_TRUE(queue_.pause({id}).ok());
  EXPECT_TRUE(soon(stopped));
  ASSERT_TRUE(queue_.resume({id}).ok());
  EXPECT_TRUE(soon([&] { return !stopped(); }));
  ASSERT_TRUE(queue_.cancel({id}).ok());
  wait(id);
}

// A stopped job that is ended gets SIGTERM first, and is continued so that it can handle the signal.
TEST_F(TreeTest, WhatIsPausedCanBeCancelled) {
  const JobId id =
      add(shell(session("one", "trap \"echo told > " + path("told") + "; exit\" TERM; " + kWait) + kWait));
  ASSERT_TRUE(written("one"));
  ASSERT_TRUE(queue_.pause({id}).ok());
  std::this_thread::sleep_for(100ms);
  ASSERT_TRUE(queue_.cancel({id}).ok());
  EXPECT_EQ(wait(id).state, State::cancelled);
  EXPECT_EQ(content(path("told")), "told\n");
}

TEST_F(TreeTest, WhatIsLeftBehindIsShownAndEnded) {
  JobSpec job = shell("nohup " + session("one", kDeaf) + "while [ ! -s " + path("one") +
                      " ]; do sleep 0.01; done; exit 3");
  job.grace = 1s;
  const JobId id = add(job);
  ASSERT_TRUE(soon([&] { return line(id).program_ended; }));
  const Job left = good(queue_.show(id));
  EXPECT_EQ(left.state, State::running);
  ASSERT_TRUE(left.left.has_value());
  EXPECT_EQ(left.left->code, 3);
  EXPECT_EQ(left.left->processes.at(0),
            "sh (" + content(path("one")).substr(0, content(path("one")).size() - 1) + ")");
  EXPECT_FALSE(gone(number("one")));
  const JobLine over = wait(id);
  EXPECT_EQ(over.state, State::failed);
  EXPECT_EQ(over.how, How::exited);
  EXPECT_EQ(over.code, 3) << "the program's";
  EXPECT_GE(over.ended_ns - over.started_ns, std::chrono::nanoseconds(3s).count())
      << "two alone, and the grace";
  EXPECT_TRUE(gone(number("one")));
  const Job after = good(queue_.show(id));
  EXPECT_FALSE(after.program_ended);
  EXPECT_NE(after.reason.find("left"), std::string::npos) << after.reason;
  EXPECT_NE(after.reason.find(" ended: sh ("), std::string::npos) << after.reason;
}

// For example the last lines of a pipe.
TEST_F(TreeTest, WhatEndsByItselfIsLeftAlone) {
  const JobId id = add(shell("(trap 'echo told' TERM; sleep 0.5; echo last) & exit 0"));
  EXPECT_EQ(wait(id).state, State::done);
  EXPECT_EQ(content(good(queue_.log_path(id))), "last\n");
  EXPECT_EQ(good(queue_.show(id)).reason, "");
}

TEST_F(TreeTest, CancellingWhatIsLeftHastensItsEndAndNoMore) {
  const JobId id = add(shell(session("one", kWait) + "exit 0"));
  ASSERT_TRUE(written("one") && soon([&] { return line(id).program_ended; }));
  ASSERT_TRUE(queue_.cancel({id}).ok());
  EXPECT_EQ(wait(id).state, State::done) << "its program had succeeded";
  EXPECT_TRUE(gone(number("one")));
}

TEST_F(TreeTest, OneThatLingersEndsWithItsLast) {
  JobSpec job = shell(session("one", "while [ ! -e " + path("go") + " ]; do sleep 0.02; done") + "exit 0");
  job.linger = true;
  const JobId id = add(job);
  ASSERT_TRUE(written("one") && soon([&] { return line(id).program_ended; }));
  std::this_thread::sleep_for(2500ms);  // Longer than the processes of a job without `linger` may live.
  EXPECT_EQ(line(id).state, State::running);
  EXPECT_FALSE(gone(number("one")));
  test::spit(path("go"), "");
  EXPECT_EQ(wait(id).state, State::done);
  EXPECT_EQ(good(queue_.show(id)).reason, "");
}

TEST_F(TreeTest, OneThatLingersCanBeCancelledAndHasItsTimeLimit) {
  JobSpec job = shell(session("one", kDeaf) + "exit 0");
  job.linger = true;
  job.grace = 200ms;
  const JobId cancelled = add(job);
  ASSERT_TRUE(written("one") && soon([&] { return line(cancelled).program_ended; }));
  ASSERT_TRUE(queue_.cancel({cancelled}).ok());
  EXPECT_EQ(wait(cancelled).state, State::cancelled);
  EXPECT_TRUE(gone(number("one")));

  std::filesystem::remove(path("one"));
  job.time_limit = 600ms;
  const JobLine late = wait(add(job));
  EXPECT_EQ(late.state, State::failed);
  EXPECT_EQ(late.how, How::time_limit);
  EXPECT_TRUE(gone(number("one")));
}

// Each supervisor starts a runner where there is none. None of them may end the runner's process or wait for
// it.
TEST_F(TreeTest, ARunnerIsNeverInAJobsTree) {
  const std::string waits = "while [ ! -e " + path("go") + " ]; do sleep 0.02; done";
  const JobId first = add(shell(waits)), second = add(shell(waits));
  ASSERT_TRUE(soon([&] { return supervisor(first) > 0 && supervisor(second) > 0; }));
  const pid_t runner = outer_.runner();
  const auto line = lease::process_line(runner);
  ASSERT_GT(line.size(), 1U);
  ASSERT_EQ(kill(static_cast<pid_t>(line[1].pid), SIGKILL), 0);  // The runner's watcher.
  ASSERT_EQ(kill(runner, SIGKILL), 0);
  ASSERT_TRUE(soon([&] { return outer_.runner() > 0 && outer_.runner() != runner; }))
      << "one of the supervisors";
  for (const JobId id : {first, second})
    for (const lease::Descendant& each : lease::descendants(supervisor(id)))
      EXPECT_NE(each.process.pid, outer_.runner());
  test::spit(path("go"), "");
  EXPECT_EQ(wait(first).state, State::done);
  EXPECT_EQ(wait(second).state, State::done);
}

// A job that adds jobs leaves the start of a runner to its supervisor: a runner below it would end with it.
TEST_F(TreeTest, AJobStartsNoRunnerOfItsOwnQueue) {
  const std::string starts = test::queue_runner().words[0] + " --ensure " + directory_->path();
  const JobId id = add(shell("echo $$ > " + path("up") + "; while [ ! -e " + path("go") +
                             " ]; do sleep 0.02; done; " + starts + " > " + path("said")));
  ASSERT_TRUE(written("up"));
  const pid_t above = supervisor(id), runner = outer_.runner();
  ASSERT_EQ(kill(above, SIGSTOP), 0);  // The supervisor would start a runner too.
  const auto line = lease::process_line(runner);
  ASSERT_EQ(kill(static_cast<pid_t>(line[1].pid), SIGKILL), 0);
  ASSERT_EQ(kill(runner, SIGKILL), 0);
  ASSERT_TRUE(soon([&] { return !runner_alive(*directory_); }));
  test::spit(path("go"), "");
  ASSERT_TRUE(soon([&] { return content(path("said")) == "okay\n"; }));
  EXPECT_FALSE(runner_alive(*directory_));
  kill(above, SIGCONT);
  EXPECT_EQ(wait(id).state, State::done);
}

TEST(Descendants, OfAllGenerationsWhateverTheirSession) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      setsid();
      const char ready = 'r';
      if (write(ends[1], &ready, 1) != 1) _exit(1);
    }
    for (;;) pause();
  }
  char ready = 0;
  ASSERT_EQ(read(ends[0], &ready, 1), 1);
  const auto all = lease::descendants(getpid());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].process.pid, child);
  EXPECT_EQ(all[1].group, all[1].process.pid);
  EXPECT_EQ(lease::process_line(all[1].process.pid).at(1), all[0].process);
  lease::ProcessKey another = all[1].process;
  another.start_ticks += 1;
  EXPECT_FALSE(lease::signal_process(another, SIGKILL)) << "its number only";
  EXPECT_EQ(lease::descendants(getpid()).size(), 2U);
  for (const lease::Descendant& each : all) EXPECT_TRUE(lease::signal_process(each.process, SIGKILL));
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(lease::signal_process(all[0].process, SIGKILL));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace innkeeper::queue
