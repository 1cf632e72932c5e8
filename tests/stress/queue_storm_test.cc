// The test kills the runner at random, and at each named step of its work and of the supervisors'. Meanwhile
// jobs come, run and end, and the wall clock changes by up to 400 days. Each job has run exactly once, or is
// reported as interrupted; none is lost, none ran twice, none is forgotten.
//
// The judge is outside the queue: each job adds its own line to a file, by one write.
//
// INNKEEPER_STORM_JOBS and INNKEEPER_STORM_KILLS ask for a longer storm (500 and 100), INNKEEPER_SEED replays
// a seed (processes still interleave as they like).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <random>

#include "support/environment.h"
#include "support/temporary_queue_directory.h"

namespace innkeeper::queue {
namespace {

using namespace std::chrono_literals;
using test::from_environment;
using test::soon;
using test::TemporaryQueueDirectory;

constexpr auto kStormLimit = 500'000ms;
constexpr auto kJobLimit = 60'000ms;

// Number of occurrences of each number in the file.
std::map<int, int> count_lines(const std::string& path) {
  std::map<int, int> count;
  std::ifstream file(path);
  for (int number = 0; file >> number;) ++count[number];
  return count;
}

JobSpec counted(int number, const std::string& file, const std::string& pause) {
  JobSpec spec = test::shell("echo " + std::to_string(number) + " >> " + file + "; sleep " + pause);
  spec.environment = {"PATH=/usr/bin:/bin"};
  return spec;
}

TEST(QueueStorm, RunnerKilledAtRandom) {
  const int jobs = static_cast<int>(from_environment("INNKEEPER_STORM_JOBS", 60));
  const int kills = static_cast<int>(from_environment("INNKEEPER_STORM_KILLS", 12));
  const uint64_t seed = from_environment("INNKEEPER_SEED", std::random_device()());
  SCOPED_TRACE("INNKEEPER_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);

  const TemporaryQueueDirectory directory;
  test::Environment clock;
  Queue queue = directory.queue();
  ASSERT_TRUE(queue.set_cpu_slots(4).ok());
  const std::string ran = (directory.outer() / "ran").string();
  std::vector<JobId> ids;
  int killed = 0, added = 0;
  const auto nothing_left = [&] {
    return queue.list({{{State::queued, State::running}}, 0, 0}).value().empty();
  };
  // The test adds jobs while runners die, so that every state meets every kill. A runner without jobs leaves
  // at once, and is hardly ever met alive: then the test adds one more job, also beyond `jobs`.
  while (added < jobs || killed < kills) {
    const int64_t hours = static_cast<int64_t>(random() % (2 * 400 * 24)) - 400 * 24;
    clock.set("INNKEEPER_CLOCK_ERROR", std::to_string(random() % 2 == 0 ? hours : 0));
    const bool due = added < jobs && added * kills <= killed * jobs + 4 * kills;
    if (due || nothing_left()) {
      JobSpec spec = counted(added, ran, random() % 2 == 0 ? "0" : "0.03");
      if (!ids.empty() && random() % 4 == 0) spec.after = {{ids[random() % ids.size()], true}};
      ids.push_back(queue.add(spec).value().at(0));
      ++added;
      if (due) continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    if (directory.kill_runner()) {
      ++killed;
    } else {
      ASSERT_TRUE(queue.ensure_runner().ok());  // The runner may have ended for want of work.
    }
  }
  const auto lines = queue.wait(ids, kStormLimit);
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  const std::map<int, int> count = count_lines(ran);
  int interrupted = 0;
  for (int i = 0; i < added; ++i) {
    const JobLine& line = lines.value()[static_cast<size_t>(i)];
    const int times = count.contains(i) ? count.at(i) : 0;
    interrupted += line.state == State::interrupted;
    EXPECT_LE(times, 1) << "job " << line.id << " ran twice";
    if (line.state != State::interrupted) {
      EXPECT_EQ(line.state, State::done) << line.id;
      EXPECT_EQ(times, 1) << "job " << line.id << " is lost";
    }
  }
  EXPECT_EQ(queue.list().value().size(), static_cast<size_t>(added)) << "history was pruned";
  // The test killed only runners, and a supervisor outlives its runner: no job needed to be interrupted.
  EXPECT_EQ(interrupted, 0);
  std::printf("%d jobs, %d runners killed, %d interrupted\n", added, killed, interrupted);
}

// While this object lives, the first process of a queue that reaches the step kills itself there.
class DeadlyStep {
 public:
  DeadlyStep(const TemporaryQueueDirectory& directory, const char* step)
      : reached_(directory.outer() / "killed") {
    environment_.set("INNKEEPER_KILL_STEP", step);
    environment_.set("INNKEEPER_KILL_FILE", reached_.string());
  }
  // A job's last step may come after its end is known.
  bool was_reached() const {
    return soon([&] { return std::filesystem::exists(reached_); });
  }

 private:
  const std::filesystem::path reached_;
  test::Environment environment_;
};

// Steps of the runner: the job runs exactly once, wherever the runner is killed.
class RunnerStep : public ::testing::TestWithParam<const char*> {};

TEST_P(RunnerStep, RunsOnce) {
  const TemporaryQueueDirectory directory;
  const DeadlyStep step(directory, GetParam());
  const std::string ran = (directory.outer() / "ran").string();
  Queue queue = directory.queue();
  std::vector<JobId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(queue.add(counted(i, ran, "0")).value().at(0));
  const auto lines = queue.wait(ids, kJobLimit);
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  for (const JobLine& line : lines.value()) EXPECT_EQ(line.state, State::done) << line.id;
  EXPECT_EQ(count_lines(ran), (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_TRUE(step.was_reached());
}

// A killed runner had begun to prune; the next one completes the pruning.
TEST(QueueStorm, KilledWhilePruning) {
  const TemporaryQueueDirectory directory;
  const std::string ran = (directory.outer() / "ran").string();
  Queue queue = directory.queue();
  ASSERT_TRUE(queue.set_keep({.age = std::nullopt, .jobs = 1}).ok());
  const DeadlyStep step(directory, "outputs removed");
  std::vector<JobId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(queue.add(counted(i, ran, "0")).value().at(0));
  const auto lines = queue.wait(ids, kJobLimit);
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  for (const JobLine& line : lines.value()) EXPECT_EQ(line.state, State::done) << line.id;
  const auto output = directory.path() / "output";
  EXPECT_TRUE(step.was_reached());
  EXPECT_TRUE(soon([&] { return queue.list().value().size() == 1; }))
      << queue.list().value().size() << " are left; " << test::content(directory.path() / "runner.log");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(output), {}), 1);
}

INSTANTIATE_TEST_SUITE_P(Steps, RunnerStep,
                         ::testing::Values("life made", "life locked", "claimed", "before fork", "forked",
                                           "before finish", "finished", "life removed", "runner idle",
                                           "runner left"));

// Steps of the supervisor. Killed before the job could begin, the next attempt runs the job; killed after its
// end was recorded, the job has ended; in between, the job is interrupted.
struct SupervisorCase {
  const char* step;
  State state;
  int least, most;  // Fewest and most runs of the job.
};
class SupervisorStep : public ::testing::TestWithParam<SupervisorCase> {};

TEST_P(SupervisorStep, IsNeverRunTwice) {
  const TemporaryQueueDirectory directory;
  const DeadlyStep step(directory, GetParam().step);
  const std::string ran = (directory.outer() / "ran").string();
  Queue queue = directory.queue();
  const std::vector<JobId> ids = queue.add(counted(7, ran, "0.2")).value();
  const auto lines = queue.wait(ids, kJobLimit);
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  EXPECT_TRUE(step.was_reached());
  EXPECT_EQ(lines.value()[0].state, GetParam().state);
  const std::map<int, int> count = count_lines(ran);
  const int times = count.contains(7) ? count.at(7) : 0;
  EXPECT_GE(times, GetParam().least);
  EXPECT_LE(times, GetParam().most);
}

INSTANTIATE_TEST_SUITE_P(Steps, SupervisorStep,
                         ::testing::Values(SupervisorCase{"supervisor started", State::done, 1, 1},
                                           SupervisorCase{"before began", State::done, 1, 1},
                                           SupervisorCase{"began", State::interrupted, 0, 0},
                                           SupervisorCase{"job started", State::interrupted, 1, 1},
                                           SupervisorCase{"job ended", State::interrupted, 1, 1},
                                           SupervisorCase{"ended", State::done, 1, 1}));

// A job whose supervisor is killed goes on, counts as running until its end, and is not run a second time.
TEST(QueueStorm, JobOutlivesItsSupervisor) {
  const TemporaryQueueDirectory directory;
  const std::string ran = (directory.outer() / "ran").string();
  Queue queue = directory.queue();
  const std::string go = (directory.outer() / "go").string();
  const std::string more = "0; while [ ! -e " + go + " ]; do sleep 0.02; done; echo 2 >> " + ran;
  const JobId id = queue.add(counted(1, ran, more)).value().at(0);
  ASSERT_TRUE(soon([&] { return !count_lines(ran).empty(); }));
  const pid_t shell =
      std::atoi(test::content(directory.path() / "life" / (std::to_string(id) + ".1")).c_str() + 6);
  ASSERT_GT(shell, 1);
  ASSERT_EQ(kill(shell, SIGKILL), 0);  // Supervisor from the line "began PID ...".
  ASSERT_TRUE(directory.kill_runner());
  ASSERT_TRUE(queue.ensure_runner().ok());
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(queue.show(id).value().state, State::running);
  test::spit(go, "");
  EXPECT_EQ(queue.wait({id}, kJobLimit).value().at(0).state, State::interrupted);
  EXPECT_EQ(count_lines(ran), (std::map<int, int>{{1, 1}, {2, 1}}));
}

// A job that ignores SIGTERM is killed, and so are its children.
TEST(QueueStorm, KilledAfterTheGrace) {
  const TemporaryQueueDirectory directory;
  Queue queue = directory.queue();
  JobSpec spec = test::shell("trap '' TERM; sleep 100 & while :; do wait; done");
  spec.time_limit = 100ms;
  spec.grace = 2s;
  const JobLine line = queue.wait(queue.add(spec).value(), kJobLimit).value().at(0);
  EXPECT_EQ(line.how, How::time_limit);
  EXPECT_GE(line.ended_ns - line.started_ns, std::chrono::nanoseconds(spec.grace).count());
  EXPECT_LE(line.ended_ns - line.started_ns, std::chrono::nanoseconds(6 * spec.grace).count());
}

// --retry permits another run, even if the end of the first is unknown.
TEST(QueueStorm, RetriesWhatWasInterrupted) {
  const TemporaryQueueDirectory directory;
  const DeadlyStep step(directory, "job ended");
  const std::string ran = (directory.outer() / "ran").string();
  Queue queue = directory.queue();
  JobSpec spec = counted(1, ran, "0");
  spec.retries = 1;
  const auto lines = queue.wait(queue.add(spec).value(), kJobLimit);
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(lines.value()[0].state, State::done);
  EXPECT_EQ(lines.value()[0].attempt, 2);
  EXPECT_EQ(count_lines(ran), (std::map<int, int>{{1, 2}}));
}

}  // namespace
}  // namespace innkeeper::queue
