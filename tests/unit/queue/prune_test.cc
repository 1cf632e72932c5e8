// Pruning: the entries that the queue's history loses, those it never loses, and the facts it keeps of lost
// ones.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/clock.h"
#include "queue/careful_clock.h"
#include "queue/scheduler.h"
#include "support/queue_fixture.h"

namespace innkeeper::queue {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kAll = 1'000'000;

class PruneTest : public TemporaryQueueDirectoryTest {
 protected:
  JobId add(const std::vector<Need>& after = {}) {
    JobSpec job = spec_;
    job.after = after;
    return good(store_.add(job)).at(0);
  }
  void begin(JobId id, int attempt = 1) {
    ASSERT_TRUE(good(store_.claim(id, attempt, "", "boot")));
    test::spit(output(id, attempt), "some output");
  }
  void end(JobId id, int code = 0, int attempt = 1) {
    begin(id, attempt);
    Ending ending;
    ending.how = How::exited;
    ending.code = code;
    good(store_.finish(id, attempt, ending));
  }
  JobId ended(int code = 0) {
    const JobId id = add();
    end(id, code);
    return id;
  }
  // Moves the job's end back by `age`.
  void make_older(JobId id, std::chrono::nanoseconds age) {
    sql("UPDATE jobs SET ended=ended-" + std::to_string(age.count()) + " WHERE id=" + std::to_string(id));
  }
  int64_t sql(const std::string& text) {
    sqlite3* file = nullptr;
    EXPECT_EQ(sqlite3_open(directory_->database().c_str(), &file), SQLITE_OK);
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(file, text.c_str(), -1, &statement, nullptr), SQLITE_OK) << text;
    const int64_t value = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    sqlite3_close(file);
    return value;
  }
  std::string output(JobId id, int attempt = 1) const { return directory_->output(id, attempt); }
  bool kept(JobId id) { return store_.line(id).ok(); }
  int64_t prune(const Keep& keep, int64_t enough = kAll) {
    return good(store_.prune(keep, *directory_, enough)).jobs;
  }
  int64_t prune_all() { return prune({.age = 0ns, .jobs = std::nullopt}); }

  Store store_ = store();
  JobSpec spec_ = spec();
};

TEST_F(PruneTest, ByAgeAndByNumber) {
  std::vector<JobId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(ended());
  make_older(ids[4], 3h);  // The age counts from a job's end, not from its addition.
  make_older(ids[1], 2h);
  EXPECT_EQ(prune({}), 0) << "no bound";
  EXPECT_EQ(prune({.age = 4h, .jobs = 6}), 0);
  EXPECT_EQ(prune({.age = 150min, .jobs = std::nullopt}), 1);
  EXPECT_FALSE(kept(ids[4]));
  EXPECT_EQ(prune({.age = 4h, .jobs = 4}), 1) << "either bound is one";
  EXPECT_FALSE(kept(ids[1]));
  sql("UPDATE jobs SET ended=77");  // all at once
  EXPECT_EQ(prune({.age = std::nullopt, .jobs = 3}), 1);
  EXPECT_FALSE(kept(ids[0]));
  EXPECT_EQ(prune({.age = std::nullopt, .jobs = 0}), 3);
  EXPECT_TRUE(good(store_.list({})).empty());
}

TEST_F(PruneTest, WhatWaitsOrRunsStays) {
  const JobId waits = add(), runs = add(), held = add(), again = add();
  begin(runs);
  ASSERT_TRUE(store_.hold({held}, true).ok());
  ASSERT_TRUE(good(store_.claim(again, 1, "", "boot")));
  ASSERT_TRUE(store_.take_back(again, 1).ok());
  sql("UPDATE jobs SET ended=1, added=1, started=1");
  EXPECT_EQ(prune_all(), 0);
  EXPECT_EQ(prune({.age = std::nullopt, .jobs = 0}), 0);
  for (const JobId id : {waits, runs, held, again}) EXPECT_TRUE(kept(id)) << id;
  EXPECT_TRUE(std::filesystem::exists(output(runs)));
}

TEST_F(PruneTest, OutputOfEveryAttemptGoes) {
  spec_.retries = 2;
  const JobId id = add();
  end(id, 1, 1);
  // A job that never began leaves no attempt, but maybe a file.
  ASSERT_TRUE(good(store_.claim(id, 2, "", "boot")));
  test::spit(output(id, 2), "");
  ASSERT_TRUE(store_.take_back(id, 2).ok());
  end(id, 0, 3);
  const Pruned pruned = good(store_.prune({.age = 0ns, .jobs = std::nullopt}, *directory_, 1));
  EXPECT_EQ(pruned.jobs, 1);
  EXPECT_EQ(pruned.output, Bytes(2 * 11));
  EXPECT_TRUE(std::filesystem::is_empty(outer_.path() / "output"));
}

TEST_F(PruneTest, OutputThatAProcessHasOpenStays) {
  const JobId read = ended(), written = ended(), none = ended();
  const int reader = open(output(read).c_str(), O_RDONLY | O_CLOEXEC);
  const int writer = open(output(written).c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_TRUE(reader >= 0 && writer >= 0);
  EXPECT_EQ(prune_all(), 1);
  EXPECT_TRUE(kept(read) && kept(written) && !kept(none));
  EXPECT_TRUE(std::filesystem::exists(output(read)) && std::filesystem::exists(output(written)));
  close(reader);
  close(writer);
  EXPECT_EQ(prune_all(), 2);
}

TEST_F(PruneTest, ALinkInPlaceOfAnOutputLeadsNowhere) {
  const JobId id = ended();
  const auto precious = outer_.outer() / "precious";
  test::spit(precious, "precious");
  std::filesystem::remove(output(id));
  std::filesystem::create_symlink(precious, output(id));
  EXPECT_EQ(prune_all(), 1);
  EXPECT_EQ(content(precious), "precious");
  EXPECT_TRUE(std::filesystem::is_empty(outer_.path() / "output"));
}

TEST_F(PruneTest, AnArrayGoesAtOnceOrStays) {
  JobSpec many = spec_;
  many.indices = {0, 1, 2};
  const std::vector<JobId> first = good(store_.add(many)), second = good(store_.add(many));
  for (const JobId id : {first[0], first[1], second[0], second[1], second[2]}) end(id);
  const JobId alone = ended();
  for (const JobId id : second) make_older(id, 5h);
  EXPECT_EQ(prune({.age = 0ns, .jobs = std::nullopt}, 1), 3) << "enough is one, but the array goes at once";
  EXPECT_FALSE(kept(second[0]) || kept(second[1]) || kept(second[2]));
  EXPECT_EQ(prune_all(), 1);
  EXPECT_FALSE(kept(alone));
  EXPECT_TRUE(kept(first[0])) << "first[2] waits";
  end(first[2]);
  make_older(first[0], 5h);
  EXPECT_EQ(prune({.age = 1h, .jobs = std::nullopt}), 0) << "its others are young";
  const int reader = open(output(first[1]).c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(prune_all(), 0) << "somebody reads one of its outputs";
  close(reader);
  EXPECT_EQ(prune_all(), 3);
  EXPECT_EQ(good(store_.members(first[0])), first);
  EXPECT_EQ(good(store_.members(second[0])), second);
}

TEST_F(PruneTest, HowAPrunedJobEndedStaysKnown) {
  const JobId good_one = ended(), bad = ended(1);
  const JobId runs = add();
  begin(runs);
  const JobId waits = add({{good_one}, {runs}}), any = add({{bad, true}, {runs}});
  EXPECT_EQ(prune_all(), 2);
  EXPECT_EQ(good(store_.line(waits)).needs, 1) << "for the one that runs";
  EXPECT_EQ(good(store_.get(waits)).after, (std::vector<Need>{{good_one}, {runs}}));
  EXPECT_EQ(good(store_.line(any)).needs, 1);

  EXPECT_EQ(good(store_.line(add({{good_one}}))).needs, 0);
  EXPECT_EQ(good(store_.line(add({{bad, true}}))).needs, 0);
  JobSpec job = spec_;
  job.after = {{bad}};
  const Status refused = store_.add(job).status();
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("did not succeed (it is failed)"), std::string::npos) << refused.message();
  job.after = {{9999}};
  EXPECT_EQ(store_.add(job).status().message(), "there is no job 9999");
  EXPECT_EQ(store_.get(bad).status().message(),
            "there is no job " + std::to_string(bad) + " any more: it was failed, and pruned");
  EXPECT_EQ(good(store_.known(bad)).state, State::failed);
  EXPECT_EQ(good(store_.known(runs)).state, State::running);
}

TEST_F(PruneTest, EqualNeighboursShareARow) {
  std::vector<JobId> ids;
  for (int i = 0; i < 7; ++i) ids.push_back(ended(i == 5 ? 1 : 0));
  const auto only = [&](size_t i) {
    make_older(ids[i], 3h);
    EXPECT_EQ(prune({.age = 1h, .jobs = std::nullopt}), 1);
  };
  for (const size_t i : {0, 2, 4}) only(i);
  EXPECT_EQ(sql("SELECT count(*) FROM endings"), 3);
  for (const size_t i : {1, 3}) only(i);
  EXPECT_EQ(sql("SELECT count(*) FROM endings"), 1);
  for (const size_t i : {6, 5}) only(i);
  EXPECT_EQ(sql("SELECT count(*) FROM endings"), 3);
  for (size_t i = 0; i < 7; ++i)
    EXPECT_EQ(good(store_.known(ids[i])).state, i == 5 ? State::failed : State::done) << i;
  EXPECT_FALSE(store_.known(ids[0] - 1).ok());
  EXPECT_FALSE(store_.known(ids[6] + 1).ok());
}

TEST_F(PruneTest, TidyingLeavesWhatIsUsedAndWhatWasMeasured) {
  spec_.environment = {"BIG=" + std::string(3'000'000, 'x')};
  spec_.command = {"measured"};
  const JobId measured = add();
  begin(measured);
  ASSERT_TRUE(store_.measured(measured, 1, GiB(3)).ok());
  Ending ending;
  ending.how = How::exited;
  good(store_.finish(measured, 1, ending));
  spec_.command = {"plain"};
  ended();
  spec_.environment = {"SMALL=1"};
  spec_.command = {"waits"};
  const JobId waits = add();
  const int64_t pages = sql("PRAGMA page_count");
  ASSERT_TRUE(store_.tidy().ok());
  EXPECT_EQ(sql("SELECT count(*) FROM environments"), 2);
  EXPECT_EQ(prune_all(), 2);
  ASSERT_TRUE(store_.tidy().ok());
  EXPECT_EQ(sql("SELECT count(*) FROM environments"), 1);
  EXPECT_EQ(sql("SELECT count(*) FROM commands"), 2) << "the one that waits, and the one that was measured";
  EXPECT_EQ(sql("SELECT count(*) FROM attempts") + sql("SELECT count(*) FROM needs"), 0);
  EXPECT_EQ(sql("SELECT count(*) FROM details"), 1);
  EXPECT_EQ(good(store_.measured_of("/", {"measured"})).peak_memory, GiB(3));
  EXPECT_EQ(good(store_.get(waits)).environment, std::vector<std::string>{"SMALL=1"});
  EXPECT_LT(sql("PRAGMA page_count"), pages / 4) << "the room is the disk's again";
}

// Prunes with a real runner.
class AutomaticTest : public QueueFixture {};

TEST_F(AutomaticTest, TheRunnerPrunesWhenItEnds) {
  const Keep usual = queue_.keep().value();
  EXPECT_EQ(usual.age, std::chrono::nanoseconds(kKeepAge));
  EXPECT_EQ(usual.jobs, kKeepJobs);
  ASSERT_TRUE(queue_.set_keep({.age = std::nullopt, .jobs = 2}).ok());
  EXPECT_EQ(queue_.keep().value().age, std::nullopt);
  EXPECT_FALSE(queue_.set_keep({.age = -1s, .jobs = 2}).ok());
  std::vector<JobId> ids;
  {
    // More jobs than one step of pruning removes. No runner sees them.
    const auto directory = good(QueueDirectory::open(outer_.path().string()));
    Store store = good(Store::open(*directory, Durable::processes));
    JobSpec job = shell("true");
    job.directory = "/";
    Ending ending;
    ending.how = How::exited;
    for (int i = 0; i < 210; ++i) {
      ids.push_back(good(store.add(job)).at(0));
      ASSERT_TRUE(good(store.claim(ids.back(), 1, "", "boot")));
      good(store.finish(ids.back(), 1, ending));
    }
  }
  for (int i = 0; i < 5; ++i) ids.push_back(queue_.add(shell("echo out")).value().at(0));
  ASSERT_TRUE(queue_.wait(ids, 20s).ok()) << "also when some are pruned by now";
  ASSERT_TRUE(soon([&] { return !queue_.runner_alive(); }));
  EXPECT_EQ(queue_.list().value().size(), 2U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(outer_.path() / "output"), {}), 2);
  const std::vector<JobLine> lines = queue_.wait(ids, 0ms).value();
  for (const JobLine& line : lines) EXPECT_EQ(line.state, State::done) << line.id;
  EXPECT_EQ(queue_.resolve("1-215").value(), ids);
  EXPECT_FALSE(queue_.resolve("1-216").ok());
}

// Otherwise a queue that is never empty would grow for ever.
TEST_F(AutomaticTest, TheRunnerPrunesWhileItWorks) {
  ASSERT_TRUE(queue_.set_keep({.age = std::nullopt, .jobs = 5}).ok());
  ASSERT_TRUE(queue_.set_cpu_slots(8).ok());
  const std::string go = path("go");
  const JobId busy = queue_.add(shell("while [ ! -e " + go + " ]; do sleep 0.02; done")).value().at(0);
  JobSpec one;
  one.command = {"/bin/true"};
  for (int i = 0; i < 110; ++i) ASSERT_TRUE(queue_.add(one).ok());
  EXPECT_TRUE(soon([&] { return queue_.list().value().size() < 50; }));
  EXPECT_EQ(queue_.show(busy).value().state, State::running);
  test::spit(go, "");
  EXPECT_EQ(queue_.wait({busy}, 20s).value().at(0).state, State::done);
}

TEST_F(AutomaticTest, ManyAtATimeByHand) {
  JobSpec many = shell("true");
  for (int64_t i = 0; i < 30; ++i) many.indices.push_back(i);
  const std::vector<JobId> array = queue_.add(many).value();
  ASSERT_TRUE(queue_.wait(array, 60s).ok());
  EXPECT_EQ(queue_.prune({.age = 0ns, .jobs = std::nullopt}).value().jobs, 30);
  EXPECT_EQ(queue_.resolve(std::to_string(array[0])).value(), array);
  EXPECT_EQ(queue_.resolve(std::to_string(array[0]) + ".29").value(), std::vector<JobId>{array[29]});
  JobSpec after = shell("true");
  for (const JobId id : array) after.after.push_back({id});
  EXPECT_EQ(queue_.wait(queue_.add(after).value(), 20s).value().at(0).state, State::done);
}

// The runner's own pruning when the machine starts with a clock more than a year ahead.
class CarefulPrune : public PruneTest {
 protected:
  ~CarefulPrune() override { wall_clock_error_ns = 0; }
  // Prunes like a runner that starts with the wall clock wrong by `error`, in this boot.
  int64_t prune_by_runner(std::chrono::nanoseconds error, const std::string& boot, int64_t at_least = 0) {
    wall_clock_error_ns = error.count();
    const int64_t now = good(careful_now(store_, boot));
    const Keep keep{.age = 24h * 90, .jobs = std::nullopt};
    return good(store_.prune(keep, *directory_, kAll, Care{now, at_least})).jobs;
  }
  static constexpr auto kYear = 24h * 400;
};

TEST_F(CarefulPrune, AClockThatIsWrongOnceCostsNothing) {
  for (int i = 0; i < 5; ++i) ended();
  EXPECT_EQ(prune_by_runner(0ns, "monday"), 0);
  EXPECT_EQ(prune_by_runner(kYear, "tuesday"), 0) << "the start before says otherwise";
  EXPECT_EQ(prune_by_runner(kYear, "tuesday"), 0) << "so it does later";
  EXPECT_EQ(prune_by_runner(0ns, "tuesday"), 0) << "set right";
  EXPECT_EQ(prune_by_runner(kYear, "tuesday"), 0) << "and wrong again";
  EXPECT_EQ(prune_by_runner(0ns, "wednesday"), 0);
}

TEST_F(CarefulPrune, InTheFirstStartTheMachinesClockCounts) {
  ended();
  EXPECT_EQ(prune_by_runner(0ns, "monday"), 0);
  EXPECT_EQ(prune_by_runner(kYear, "monday"), 0) << "not a year has passed since";
}

TEST_F(CarefulPrune, WhatTwoStartsCallOldGoes) {
  const JobId old = ended(), young = ended();
  sql("UPDATE jobs SET added=added-" + std::to_string((24h * 100 / 1ns)) +
      " WHERE id=" + std::to_string(old));
  make_older(old, 24h * 100);
  EXPECT_EQ(prune_by_runner(0ns, "monday", 1), 1);
  EXPECT_FALSE(kept(old));
  EXPECT_TRUE(kept(young));
}

TEST_F(CarefulPrune, SoManyAlwaysStay) {
  for (int i = 0; i < 6; ++i) ended();
  sql("UPDATE jobs SET added=1, ended=2");
  EXPECT_EQ(prune_by_runner(0ns, "monday", 4), 2);
  EXPECT_EQ(prune_by_runner(0ns, "tuesday", 4), 0);
}

// Jobs that ended while the clock was behind look older than jobs added before them.
TEST_F(CarefulPrune, NoJobIsOlderThanOneBeforeIt) {
  const JobId first = ended(), second = ended();
  sql("UPDATE jobs SET added=1, ended=2 WHERE id=" + std::to_string(second));
  EXPECT_EQ(prune_by_runner(0ns, "monday"), 0);
  EXPECT_TRUE(kept(first) && kept(second));
  sql("UPDATE jobs SET added=1, ended=2 WHERE id=" + std::to_string(first));
  EXPECT_EQ(prune_by_runner(0ns, "monday"), 2);
}

TEST_F(CarefulPrune, ByNumberItPrunesAllTheSame) {
  for (int i = 0; i < 6; ++i) ended();
  const Keep keep{.age = 24h * 90, .jobs = 4};
  EXPECT_EQ(good(store_.prune(keep, *directory_, kAll, Care{good(careful_now(store_, "monday")), 5})).jobs,
            2);
}

}  // namespace
}  // namespace innkeeper::queue
