// The queue by its public interface, with a real runner and real processes.
#include "queue/queue.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "queue/environment.h"
#include "support/fake_gpus.h"
#include "support/queue_fixture.h"

namespace innkeeper::queue {
namespace {

using namespace std::chrono_literals;

class QueueTest : public QueueFixture {
 protected:
  State state(JobId id) { return queue_.show(id).value().state; }
  std::string output(JobId id) { return content(queue_.log_path(id).value()); }
  // Shell text that waits until the test calls let_go().
  std::string until_let_go() const { return "while [ ! -e " + go().string() + " ]; do sleep 0.02; done; "; }
  void let_go() const { test::spit(go(), ""); }
  std::filesystem::path go() const { return path("go"); }
};

TEST_F(QueueTest, RunsAJobWithItsDirectoryEnvironmentAndOutput) {
  JobSpec spec = shell("pwd; echo $FRUIT; echo on stderr >&2; echo $INNKEEPER_JOB_ID; cat");
  spec.directory = "/usr";
  spec.environment = {"PATH=/usr/bin:/bin", "FRUIT=fig"};
  const JobId id = add(spec);
  const JobLine line = wait(id);
  EXPECT_EQ(line.state, State::done);
  EXPECT_EQ(line.attempt, 1);
  EXPECT_GE(line.started_ns, line.added_ns);
  EXPECT_GE(line.ended_ns, line.started_ns);
  EXPECT_EQ(output(id), "/usr\nfig\non stderr\n" + std::to_string(id) + "\n");
  const Job job = queue_.show(id).value();
  ASSERT_EQ(job.attempts.size(), 1U);
  EXPECT_EQ(job.attempts[0].how, How::exited);
  EXPECT_GT(job.attempts[0].peak_host, KiB(100));
  EXPECT_EQ(job.command, spec.command);
}

TEST_F(QueueTest, TheRunnerEndsWithTheLastJobAndBeginsWithTheNext) {
  wait(add(shell("true")));
  EXPECT_TRUE(soon([&] { return !queue_.runner_alive(); }));
  EXPECT_TRUE(std::filesystem::is_empty(outer_.path() / "life"));
  EXPECT_EQ(wait(add(shell("true"))).state, State::done);
}

TEST_F(QueueTest, SaysHowAJobEnded) {
  const JobId code = add(shell("exit 3")), signal = add(shell("kill -9 $$"));
  JobSpec missing;
  missing.command = {"no-such-program-anywhere"};
  const JobId gone = add(missing);
  JobSpec nowhere = shell("true");
  nowhere.directory = "/no/such/directory";
  const JobId lost = add(nowhere);
  for (const JobId id : {code, signal, gone, lost}) EXPECT_EQ(wait(id).state, State::failed) << id;
  EXPECT_EQ(wait(code).how, How::exited);
  EXPECT_EQ(wait(code).code, 3);
  EXPECT_EQ(wait(signal).how, How::signalled);
  EXPECT_EQ(wait(signal).code, 9);
  EXPECT_EQ(wait(gone).how, How::not_started);
  EXPECT_EQ(wait(gone).code, ENOENT);
  EXPECT_EQ(wait(lost).how, How::not_started);
}

TEST_F(QueueTest, TheJobsOwnPathFindsItsProgram) {
  const auto bin = outer_.outer() / "bin";
  std::filesystem::create_directory(bin);
  test::spit(bin / "my-tool", "#!/bin/sh\necho found\n");
  chmod((bin / "my-tool").c_str(), 0755);
  JobSpec spec;
  spec.command = {"my-tool"};
  spec.environment = {"PATH=" + bin.string() + ":/bin"};
  const JobId id = add(spec);
  EXPECT_EQ(wait(id).state, State::done);
  EXPECT_EQ(output(id), "found\n");
}

TEST_F(QueueTest, PriorityThenAge) {
  ASSERT_TRUE(queue_.set_cpu_slots(1).ok());
  ASSERT_TRUE(queue_.pause_all().ok());
  const std::string order = path("order");
  std::vector<JobId> ids;
  for (const int priority : {0, 5, 0, 9, -3}) {
    JobSpec spec = shell("echo " + std::to_string(ids.size()) + " >> " + order);
    spec.priority = priority;
    ids.push_back(add(spec));
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(std::filesystem::exists(order)) << "it is paused";
  ASSERT_TRUE(queue_.resume_all().ok());
  ASSERT_TRUE(queue_.wait(ids, kLong).ok());
  EXPECT_EQ(content(order), "3\n1\n0\n2\n4\n");
}

TEST_F(QueueTest, SlotsLimitWhatRunsAtOnce) {
  ASSERT_TRUE(queue_.set_cpu_slots(2).ok());
  const auto running = [&] {
    Filter filter;
    filter.states = std::vector<State>{State::running};
    return queue_.list(filter).value().size();
  };
  std::vector<JobId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(add(shell(until_let_go() + "sleep 0.05")));
  EXPECT_TRUE(soon([&] { return running() == 2; }));
  let_go();
  size_t most = 2;
  while (!ended(state(ids.back()))) most = std::max(most, running());
  EXPECT_EQ(most, 2U);
  JobSpec large = shell("true");  // More slots than there are: the job runs alone.
  large.cpu_slots = 5;
  EXPECT_EQ(wait(add(large)).state, State::done);
}

TEST_F(QueueTest, DependenciesOrderAndCancel) {
  const std::string file = path("done");
  const JobId first = add(shell(until_let_go() + "touch " + file));
  JobSpec second = shell("test -e " + file);
  second.after = {{first}};
  const JobId after = add(second);
  EXPECT_EQ(queue_.show(after).value().needs, 1);
  let_go();
  EXPECT_EQ(wait(after).state, State::done);

  std::filesystem::remove(go());
  const JobId bad = add(shell(until_let_go() + "exit 1"));
  JobSpec strict = shell("true"), any = shell("true");
  strict.after = {{bad}};
  any.after = {{bad, true}};
  const JobId never = add(strict), always = add(any);
  JobSpec chain = shell("true");
  chain.after = {{never}};
  const JobId last = add(chain);
  let_go();
  EXPECT_EQ(wait(never).state, State::cancelled);
  EXPECT_EQ(wait(last).state, State::cancelled);
  EXPECT_EQ(wait(always).state, State::done);
  EXPECT_EQ(queue_.show(never).value().reason, "job " + std::to_string(bad) + " did not succeed");

  JobSpec late = shell("true");
  late.after = {{bad}};
  EXPECT_EQ(queue_.add(late).status().code(), Code::invalid_argument);
  late.after = {{12345}};
  EXPECT_EQ(queue_.add(late).status().code(), Code::invalid_argument);
  late.after = {{bad, true}, {first}};
  EXPECT_EQ(wait(add(late)).state, State::done);
}

TEST_F(QueueTest, RetriesUntilItSucceeds) {
  const std::string file = path("tries");
  JobSpec spec =
      shell("echo x >> " + file + "; echo try $INNKEEPER_JOB_ATTEMPT; test $(wc -l < " + file + ") -ge 3");
  spec.retries = 5;
  const JobId id = add(spec);
  EXPECT_EQ(wait(id).state, State::done);
  const Job job = queue_.show(id).value();
  EXPECT_EQ(job.attempts.size(), 3U);
  EXPECT_EQ(job.retries_left, 3);
  EXPECT_EQ(output(id), "try 3\n");
  EXPECT_EQ(content(queue_.log_path(id, 1).value()), "try 1\n");

  JobSpec hopeless = shell("exit 1");
  hopeless.retries = 2;
  const JobId bad = add(hopeless);
  EXPECT_EQ(wait(bad).state, State::failed);
  EXPECT_EQ(queue_.show(bad).value().attempts.size(), 3U);
}

TEST_F(QueueTest, TimeLimitEndsTheWholeGroup) {
  const std::string file = path("child");
  JobSpec spec = shell("sleep 30 & echo $! > " + file + "; wait");
  spec.time_limit = 1s;
  const JobId id = add(spec);
  const JobLine line = wait(id);
  EXPECT_EQ(line.state, State::failed);
  EXPECT_EQ(line.how, How::time_limit);
  EXPECT_LT(line.ended_ns - line.started_ns, 25'000'000'000);
  const pid_t child = std::atoi(content(file).c_str());
  EXPECT_GT(child, 0);
  EXPECT_TRUE(soon([&] {
    return kill(child, 0) != 0 ||
           content("/proc/" + std::to_string(child) + "/stat").find(" Z ") != std::string::npos;
  }));
}

TEST_F(QueueTest, CancelsWhatIsQueuedAndWhatRuns) {
  ASSERT_TRUE(queue_.set_cpu_slots(1).ok());
  // Some shells report the end of their children on standard error.
  JobSpec stubborn =
      shell("exec 2>/dev/null; trap 'echo told; exit 7' TERM; echo up; while :; do sleep 0.02; done");
  stubborn.retries = 3;  // Has no effect: the user cancels the job.
  const JobId running = add(stubborn), queued = add(shell("true"));
  ASSERT_TRUE(soon([&] { return output(running) == "up\n"; }));
  ASSERT_TRUE(queue_.cancel({running, queued}).ok());
  EXPECT_EQ(wait(running).state, State::cancelled);
  EXPECT_EQ(wait(running).how, How::stopped);
  EXPECT_TRUE(output(running).ends_with("told\n")) << "the shell may tell of its child's end before";
  EXPECT_EQ(wait(queued).state, State::cancelled);
  EXPECT_EQ(queue_.show(queued).value().attempt, 0);
  ASSERT_TRUE(queue_.cancel({queued}).ok()) << "again: nothing";
  EXPECT_FALSE(queue_.cancel({999}).ok());
}

TEST_F(QueueTest, CancelsAllOrNone) {
  ASSERT_TRUE(queue_.pause_all().ok());
  const JobId id = add(shell("true"));
  EXPECT_FALSE(queue_.cancel({id, 999}).ok());
  EXPECT_EQ(state(id), State::queued);
}

TEST_F(QueueTest, PausesOneJobAndResumesIt) {
  const JobId id = add(shell("while [ ! -e " + go().string() + " ]; do echo up; sleep 0.01; done"));
  ASSERT_TRUE(soon([&] { return output(id).size() > 4; }));
  ASSERT_TRUE(queue_.pause({id}).ok());
  std::string before;
  ASSERT_TRUE(soon([&] {
    before = output(id);
    std::this_thread::sleep_for(100ms);
    return output(id) == before;
  }));
  EXPECT_EQ(state(id), State::running);
  EXPECT_TRUE(queue_.show(id).value().held);
  ASSERT_TRUE(queue_.resume({id}).ok());
  EXPECT_TRUE(soon([&] { return output(id) != before; }));
  let_go();
  EXPECT_EQ(wait(id).state, State::done);

  ASSERT_TRUE(queue_.pause_all().ok());
  const JobId held = add(shell("true"));
  ASSERT_TRUE(queue_.pause({held}).ok());
  ASSERT_TRUE(queue_.resume_all().ok());
  EXPECT_FALSE(queue_.wait({held}, 200ms).ok());
  ASSERT_TRUE(queue_.resume({held}).ok());
  EXPECT_EQ(wait(held).state, State::done);
  EXPECT_FALSE(queue_.pause({held}).ok()) << "it has ended";
}

TEST_F(QueueTest, DrainWaitsForWhatRunsAndStartsNothing) {
  ASSERT_TRUE(queue_.set_cpu_slots(1).ok());
  const JobId running = add(shell(until_let_go())), queued = add(shell("true"));
  ASSERT_TRUE(soon([&] { return state(running) == State::running; }));
  EXPECT_FALSE(queue_.drain(100ms).ok()) << "it still runs";
  let_go();
  ASSERT_TRUE(queue_.drain(kLong).ok());
  EXPECT_EQ(state(running), State::done);
  EXPECT_EQ(state(queued), State::queued);
  EXPECT_TRUE(soon([&] { return !queue_.runner_alive(); })) << "there is nothing that could start";
  ASSERT_TRUE(queue_.resume_all().ok());
  EXPECT_EQ(wait(queued).state, State::done);
}

TEST_F(QueueTest, ArraysAndSweeps) {
  JobSpec spec;
  spec.command = {"/bin/sh", "-c", "echo {index} {lr} {other} $lr $INNKEEPER_ARRAY_INDEX"};
  spec.indices = {4, 6};
  spec.sweep = {{"lr", {"0.1", "1e-3"}}};
  const std::vector<JobId> ids = queue_.add(spec).value();
  ASSERT_EQ(ids.size(), 4U);
  ASSERT_TRUE(queue_.wait(ids, kLong).ok());
  EXPECT_EQ(output(ids[0]), "4 0.1 {other} 0.1 4\n");
  EXPECT_EQ(output(ids[1]), "4 1e-3 {other} 1e-3 4\n");
  EXPECT_EQ(output(ids[3]), "6 1e-3 {other} 1e-3 6\n");
  const std::string first = std::to_string(ids[0]);
  EXPECT_EQ(queue_.resolve(first).value(), ids);
  EXPECT_EQ(queue_.resolve(first + ".1").value(), std::vector<JobId>{ids[1]});
  EXPECT_FALSE(queue_.resolve(first + ".4").ok());
  EXPECT_EQ(queue_.resolve(std::to_string(ids[2])).value(), std::vector<JobId>{ids[2]});
  EXPECT_EQ(queue_.resolve(first + "-" + std::to_string(ids[1])).value().size(), 2U);
  for (const char* bad : {"", "x", "-1", "1.x", "3-1", "99"}) EXPECT_FALSE(queue_.resolve(bad).ok()) << bad;
}

TEST_F(QueueTest, TellsWhenAJobHasEnded) {
  const std::string file = path("told");
  JobSpec spec = shell("exit 4");
  spec.name = "demo";
  spec.notify = "echo $INNKEEPER_JOB_NAME $INNKEEPER_JOB_STATE $INNKEEPER_JOB_CODE > " + file + ".tmp; mv " +
                file + ".tmp " + file;
  wait(add(spec));
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(file); }));
  EXPECT_EQ(content(file), "demo failed 4\n");
}

TEST_F(QueueTest, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(queue_.add({}).ok());
  JobSpec spec = shell("true");
  spec.cpu_slots = 0;
  EXPECT_FALSE(queue_.add(spec).ok());
  spec = shell("true");
  spec.sweep = {{"lr", {}}};
  EXPECT_FALSE(queue_.add(spec).ok());
  spec = shell("true");
  spec.gpus.emplace().count = 0;
  EXPECT_FALSE(queue_.add(spec).ok());
  spec = shell("true");
  spec.time_limit = 0ms;
  EXPECT_FALSE(queue_.add(spec).ok());
  EXPECT_TRUE(queue_.list().value().empty());
  EXPECT_FALSE(queue_.show(1).ok());
}

}  // namespace
}  // namespace innkeeper::queue
