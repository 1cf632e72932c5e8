// The queue's parts without processes: its database, life files, arrays and sweeps, measuring.
#include "queue/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <random>

#include "queue/life.h"
#include "queue/measure.h"
#include "queue/mend.h"
#include "queue/raw_file.h"
#include "queue/schema.h"
#include "queue/sweep.h"
#include "support/child.h"
#include "support/environment.h"
#include "support/queue_fixture.h"
#include "support/temporary_lease_directory.h"

namespace innkeeper::queue {
namespace {

class StoreTest : public TemporaryQueueDirectoryTest {
 protected:
  // Opens, reads and writes a store with any content: each call returns a result or a one-line message.
  void use_whatever_is_there() const {
    Result<Store> opened = Store::open(*directory_, Durable::processes);
    const auto clear = [](const Status& status) {
      EXPECT_FALSE(status.message().empty());
      EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
    };
    if (!opened.ok()) return clear(opened.status());
    Store store = std::move(opened).value();
    const Result<std::vector<JobLine>> lines = store.list({});
    if (!lines.ok()) clear(lines.status());
    for (JobId id = 0; id < 12; ++id)
      if (const Result<Job> job = store.get(id); !job.ok()) clear(job.status());
    if (const auto running = store.running(); !running.ok()) clear(running.status());
    if (const auto heads = store.heads(9); !heads.ok()) clear(heads.status());
    if (const auto added = store.add(spec()); !added.ok()) clear(added.status());
    if (const auto ended = store.finish(2, 1, {}); !ended.ok()) clear(ended.status());
  }
};

TEST_F(StoreTest, KeepsWhatWasAsked) {
  Store store = this->store();
  JobSpec job = spec();
  job.command = {"a b", "", "\xff", "{x}"};
  job.environment = {"A=1", "B=", "C=\xfe"};
  job.name = "name\x1b";
  job.priority = -4;
  job.retries = 2;
  job.time_limit = std::chrono::milliseconds(1500);
  job.notify = "say";
  job.gpus = lease::Request();
  job.gpus->count = 2;
  job.gpus->memory = GiB(3);
  job.gpus->exclusive = true;
  job.gpus->by = lease::By::power;
  job.sweep = {{"x", {"1", "2"}}};
  const std::vector<JobId> ids = good(store.add(job));
  ASSERT_EQ(ids, (std::vector<JobId>{1, 2}));
  const Job second = good(store.get(2));
  EXPECT_EQ(second.command, (std::vector<std::string>{"a b", "", "\xff", "2"}));
  EXPECT_EQ(second.environment, (std::vector<std::string>{"A=1", "B=", "C=\xfe", "x=2"}));
  EXPECT_EQ(second.array, 1);
  EXPECT_EQ(second.priority, -4);
  EXPECT_EQ(second.retries_left, 2);
  EXPECT_EQ(second.time_limit, job.time_limit);
  EXPECT_EQ(second.notify, "say");
  EXPECT_EQ(second.gpus, 2);
  EXPECT_EQ(second.memory, GiB(3));
  EXPECT_EQ(second.exclusive, true);
  EXPECT_EQ(second.by, "power");
  EXPECT_EQ(second.title.find('\x1b'), std::string::npos) << "a terminal would obey it";
}

TEST_F(StoreTest, ClaimsOnceAndOnlyTheNextAttempt) {
  Store one = store(), other = store();
  const JobId id = good(one.add(spec()))[0];
  EXPECT_FALSE(good(one.claim(id, 2, "", "boot"))) << "attempt 1 is the next";
  EXPECT_TRUE(good(one.claim(id, 1, "", "boot")));
  EXPECT_FALSE(good(other.claim(id, 1, "", "boot")));
  EXPECT_FALSE(good(other.claim(id, 2, "", "boot"))) << "it runs";
  ASSERT_TRUE(other.take_back(id, 1).ok());
  EXPECT_EQ(good(other.line(id)).state, State::queued);
  EXPECT_FALSE(good(one.claim(id, 1, "", "boot"))) << "an attempt's number is never used again";
  EXPECT_TRUE(good(one.claim(id, 2, "", "boot")));
}

TEST_F(StoreTest, AnEndIsCountedOnce) {
  Store store = this->store();
  const JobId id = good(store.add(spec()))[0];
  JobSpec after = spec();
  after.after = {{id, true}};
  const JobId second = good(store.add(after))[0];
  ASSERT_TRUE(good(store.claim(id, 1, "", "boot")));
  Ending ending;
  ending.how = How::exited;
  EXPECT_EQ(good(store.finish(id, 1, ending)), State::done);
  EXPECT_EQ(good(store.finish(id, 1, ending)), State::done) << "of a runner that was killed after its commit";
  EXPECT_EQ(good(store.line(second)).needs, 0);
  EXPECT_EQ(good(store.measured_of("/", {"/bin/true"})).runs, 1);
}

TEST_F(StoreTest, DecidesHowAJobIsByHowItsAttemptEnded) {
  Store store = this->store();
  struct {
    How how;
    int code, retries;
    bool cancel;
    State state;
  } const rows[] = {
      {How::exited, 0, 0, false, State::done},        {How::exited, 0, 0, true, State::done},
      {How::exited, 1, 0, false, State::failed},      {How::exited, 1, 1, false, State::queued},
      {How::exited, 1, 1, true, State::cancelled},    {How::signalled, 9, 0, false, State::failed},
      {How::stopped, 15, 2, true, State::cancelled},  {How::stopped, 15, 0, false, State::failed},
      {How::time_limit, 15, 0, false, State::failed}, {How::time_limit, 15, 1, false, State::queued},
      {How::not_started, 2, 0, false, State::failed}, {How::unknown, 0, 0, false, State::interrupted},
      {How::unknown, 0, 1, false, State::queued},     {How::unknown, 0, 1, true, State::cancelled},
  };
  for (const auto& row : rows) {
    JobSpec job = spec();
    job.retries = row.retries;
    const JobId id = good(store.add(job))[0];
    ASSERT_TRUE(good(store.claim(id, 1, "", "boot")));
    if (row.cancel) good(store.cancel({id}));
    Ending ending;
    ending.how = row.how;
    ending.code = row.code;
    EXPECT_EQ(good(store.finish(id, 1, ending)), row.state) << to_string(row.how) << " " << row.code;
    EXPECT_EQ(good(store.line(id)).state, row.state);
    good(store.cancel({id}));
  }
}

TEST_F(StoreTest, ReadyJobsComeByPriorityThenAge) {
  Store store = this->store();
  std::vector<JobId> ids;
  for (const int priority : {0, 3, 0, 3, -1}) {
    JobSpec job = spec();
    job.priority = priority;
    ids.push_back(good(store.add(job))[0]);
  }
  ASSERT_TRUE(store.hold({ids[1]}, true).ok());
  std::vector<JobId> order;
  const std::vector<Ready> ready = good(store.ready(10));
  for (const Ready& job : ready) order.push_back(job.id);
  EXPECT_EQ(order, (std::vector<JobId>{ids[3], ids[0], ids[2], ids[4]}));
  EXPECT_EQ(good(store.ready(1)).size(), 1U);
  EXPECT_TRUE(good(store.heads(10)).empty());
}

TEST_F(StoreTest, WhatEndedLastIsNotWhatWasAddedLast) {
  Store store = this->store();
  std::vector<JobId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(good(store.add(spec()))[0]);
  for (const JobId id : {ids[3], ids[0], ids[2]}) {
    ASSERT_TRUE(good(store.claim(id, 1, "", "boot")));
    Ending ending;
    ending.how = How::exited;
    good(store.finish(id, 1, ending));
  }
  const std::vector<JobLine> lines = good(store.ended_last(2));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].id, ids[0]);
  EXPECT_EQ(lines[1].id, ids[2]);
  EXPECT_EQ(good(store.ended_last(9)).size(), 3U);
}

TEST_F(StoreTest, ADamagedOrForeignFileIsLeftAsItIs) {
  good(store().add(spec()));
  const std::string path = directory_->database();
  const auto refused = [&](const std::string& content, const char* part) {
    std::filesystem::remove(path + "-wal");
    std::filesystem::remove(path + "-shm");
    test::spit(path, content);
    const Result<Store> opened = Store::open(*directory_, Durable::processes);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.status().message().find(part), std::string::npos) << opened.status().message();
    EXPECT_EQ(test::content(path), content);
  };
  refused(std::string(10'000, 'x'), "not a queue's database");
  std::filesystem::remove(path);
  sqlite3* foreign = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &foreign), SQLITE_OK);
  sqlite3_exec(foreign, "CREATE TABLE t(x)", nullptr, nullptr, nullptr);
  sqlite3_close(foreign);
  refused(test::content(path), "not a queue's database");
  std::filesystem::remove(path);
  good(store().add(spec()));
  ASSERT_EQ(sqlite3_open(path.c_str(), &foreign), SQLITE_OK);
  sqlite3_exec(foreign, "PRAGMA user_version=77; PRAGMA journal_mode=DELETE", nullptr, nullptr, nullptr);
  sqlite3_close(foreign);
  refused(test::content(path), "version 77");
  std::filesystem::remove(path);
}

TEST_F(StoreTest, NumbersOfADamagedDatabaseAreHeldToWhatTheyCanBe) {
  const JobId id = good(store().add(spec()))[0];
  sqlite3* file = nullptr;
  ASSERT_EQ(sqlite3_open(directory_->database().c_str(), &file), SQLITE_OK);
  const auto damage = [&](const char* sql) {
    ASSERT_EQ(sqlite3_exec(file, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sql;
  };
  damage("UPDATE jobs SET attempt=9223372036854775807, memory=-5, gpus=-1, slots=-7, title=x'1b5b324a'");
  damage("UPDATE details SET time_limit_ms=9223372036854775807");
  Store store = this->store();
  const Job job = good(store.get(id));
  EXPECT_EQ(job.attempt, 1'000'000'000) << "the next one has a number";
  EXPECT_EQ(job.memory, Bytes(0));
  EXPECT_EQ(job.gpus, 0);
  EXPECT_EQ(job.cpu_slots, 0) << "no slots are won by starting it";
  EXPECT_EQ(job.title, "\\x1b[2J");
  EXPECT_LT(std::chrono::steady_clock::now() + *job.time_limit, std::chrono::steady_clock::time_point::max());
  damage("UPDATE jobs SET state=257, attempt=1");
  EXPECT_EQ(good(store.finish(id, 1, {})), State::interrupted) << "257 is no state, and not 1 either";
  damage(
      "CREATE TABLE \"two\nlines\"(x); PRAGMA writable_schema=ON; "
      "UPDATE sqlite_master SET sql='CREATE TABLE no' WHERE name LIKE 'two%'");
  sqlite3_close(file);
  const Status refused = Store::open(*directory_, Durable::processes).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.message().find('\n'), std::string::npos) << refused.message();
  for (const char* ending : {"", "-wal", "-shm"}) std::filesystem::remove(directory_->database() + ending);
}

TEST_F(StoreTest, SurvivesAnyDamage) {
  {
    // Written to the disk, so that closing leaves no log: one file has everything.
    Store store = good(Store::open(*directory_, Durable::power));
    JobSpec job = spec();
    job.environment = {"A=" + std::string(300, 'a')};
    for (int64_t i = 0; i < 40; ++i) job.indices.push_back(i);
    const JobId id = good(store.add(job))[0];
    good(store.claim(id + 1, 1, "GPU-1", "boot"));
  }
  const std::string whole = test::content(directory_->database());
  ASSERT_GT(whole.size(), 20'000U);
  const uint64_t seed = test::from_environment("INNKEEPER_SEED", 1);
  std::mt19937_64 random(seed);
  const uint64_t rounds = test::from_environment("INNKEEPER_ROUNDS", 30);
  for (uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE("INNKEEPER_SEED=" + std::to_string(seed) + ", round " + std::to_string(round));
    std::string damaged = whole;
    for (uint64_t i = 0; i < 1 + random() % 20; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    std::filesystem::remove(directory_->database() + "-wal");
    std::filesystem::remove(directory_->database() + "-shm");
    test::spit(directory_->database(), damaged);
    use_whatever_is_there();
  }
  test::spit(directory_->database(), whole);
  std::filesystem::remove(directory_->database() + "-wal");
  std::filesystem::remove(directory_->database() + "-shm");
}

TEST_F(StoreTest, TheDirectoryIsPrivateAndLocal) {
  EXPECT_EQ(std::filesystem::status(outer_.path()).permissions(), std::filesystem::perms::owner_all);
  const auto file = outer_.outer() / "file";
  test::spit(file, "");
  EXPECT_FALSE(QueueDirectory::open(file.string()).ok());
  EXPECT_FALSE(QueueDirectory::open((file / "below").string()).ok());
  EXPECT_FALSE(QueueDirectory::open("/proc/queue").ok());
}

TEST_F(StoreTest, LifeSaysWhatIsLockedBegunAndEnded) {
  const std::string path = directory_->life(3, 1);
  EXPECT_FALSE(look(path).present);
  {
    const lease::OpenFile file = good(begin_life(path));
    EXPECT_FALSE(begin_life(path).ok()) << "one attempt has one life";
    Life life = look(path);
    EXPECT_TRUE(life.present && life.alive);
    EXPECT_FALSE(life.began || life.ended);
    ASSERT_TRUE(write_began(file.fd(), {{42, 99}}));
    Ending ending;
    ending.how = How::signalled;
    ending.code = 9;
    ending.ended_ns = 1'700'000'000'000'000'000;
    ending.peak_host = GiB(5);
    ASSERT_TRUE(write_ended(file.fd(), ending));
    life = look(path);
    ASSERT_TRUE(life.began && life.ended);
    EXPECT_EQ(life.began->supervisor, (lease::ProcessKey{42, 99}));
    EXPECT_EQ(life.ended->how, How::signalled);
    EXPECT_EQ(life.ended->code, 9);
    EXPECT_EQ(life.ended->ended_ns, ending.ended_ns);
    EXPECT_EQ(life.ended->peak_host, GiB(5));
  }
  EXPECT_FALSE(look(path).alive) << "the lock went with the last descriptor";
  EXPECT_FALSE(signal_supervisor(path, 0));
  // Half a record counts as none.
  std::string bytes = test::content(path);
  bytes[140] ^= 1;
  test::spit(path, bytes);
  EXPECT_FALSE(look(path).ended);
  EXPECT_TRUE(look(path).began);
  test::spit(path, "short");
  EXPECT_FALSE(look(path).began);
}

TEST(Sweep, ArraysAreReadOrRefused) {
  EXPECT_EQ(good(parse_array("0-3")), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(good(parse_array("7,1,10-20:5")), (std::vector<int64_t>{7, 1, 10, 15, 20}));
  for (const char* bad :
       {"", "x", "3-1", "1,,2", "1-", "-1", "1:2", "1-5:0", "0-999999999", "1,1", "1-3,2", " 1"})
    EXPECT_FALSE(parse_array(bad).ok()) << bad;
  EXPECT_EQ(parse_array("1\n\x1b[2J").status().message(),
            "an array is written as 0-9 or 1,5,10-20:5, not '1\\x0a\\x1b[2J'");
  EXPECT_EQ(good(parse_axis("lr=0.1,1e-3")).values, (std::vector<std::string>{"0.1", "1e-3"}));
  EXPECT_EQ(good(parse_axis("x=a=b")).values, std::vector<std::string>{"a=b"});
  for (const char* bad : {"", "lr", "lr=", "=1", "1x=2", "a b=2"}) EXPECT_FALSE(parse_axis(bad).ok()) << bad;
}

TEST(Sweep, EveryCombinationOnce) {
  const auto all = good(expand({5, 6}, {{"a", {"x", "y"}}, {"b", {"1"}}}));
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[1], (Values{{"index", "5"}, {"a", "y"}, {"b", "1"}}));
  EXPECT_EQ(good(expand({}, {})).size(), 1U);
  EXPECT_FALSE(expand({}, {{"a", {"1"}}, {"a", {"2"}}}).ok());
  EXPECT_FALSE(expand({1}, {{"index", {"1"}}}).ok());
  const Axis thousand{"a", std::vector<std::string>(1000, "1")};
  EXPECT_FALSE(expand({}, {thousand, {"b", thousand.values}}).ok());
  EXPECT_EQ(substitute({"{a}{a}", "{b", "{c}", "x{a}y{index}"}, all[0]),
            (std::vector<std::string>{"xx", "{b", "{c}", "xxy5"}));
  EXPECT_EQ(substitute({"{a}"}, {{"a", "{b}"}, {"b", "no"}}), std::vector<std::string>{"{b}"}) << "once";
}

TEST(Measure, OfItsFullestGpu) {
  lease::Machine machine = test::idle_machine(2);
  const lease::ProcessKey supervisor{10, 1}, other{20, 1};
  machine.gpus[0].processes = {{GiB(2), {{11, 5}, supervisor}},
                               {GiB(1), {{12, 5}, {11, 5}, supervisor}},
                               {GiB(50), {{13, 5}}},
                               {GiB(50), {}}};
  machine.gpus[1].processes = {{GiB(4), {{14, 5}, supervisor}}, {GiB(1), {other}}};
  const auto used = measure({{1, 1, supervisor}, {2, 1, other}, {3, 1, {30, 1}}}, machine);
  EXPECT_EQ(used, (std::map<JobId, Bytes>{{1, GiB(4)}, {2, GiB(1)}}));
  EXPECT_EQ(propose(MiB(7000)), MiB(7936));
  EXPECT_EQ(propose(Bytes(1)), MiB(256));
}

// SQLite's locks belong to the process, and end when it closes any descriptor of the file.
TEST_F(StoreTest, AReadOfTheFileKeepsItsLocks) {
  Store ours = good(Store::open(*directory_, Durable::processes));
  (void)good(ours.add(spec()));
  struct flock question {};
  question.l_type = F_WRLCK;
  question.l_whence = SEEK_SET;
  const auto locked = [&] {
    return test::holds_in_child([&] {
      const int fd = open(directory_->database().c_str(), O_RDWR | O_CLOEXEC);
      return fcntl(fd, F_GETLK, &question) == 0 && question.l_type != F_UNLCK;
    });
  };
  ASSERT_TRUE(locked());
  EXPECT_EQ(read_header(directory_->database(), kSchema).kind, Header::ours);
  EXPECT_TRUE(locked());
  EXPECT_TRUE(copy_file(directory_->database(), directory_->path() + "/copy").ok());
  EXPECT_TRUE(locked());
  EXPECT_TRUE(Store::open(*directory_, Durable::processes).ok());
  EXPECT_TRUE(locked());
  EXPECT_FALSE(good(mend(*directory_)));
  EXPECT_TRUE(locked());
}

}  // namespace
}  // namespace innkeeper::queue
