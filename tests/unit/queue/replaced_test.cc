// A queue's database that is lost or replaced while a process opens or reads it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "lease/kill_point.h"
#include "queue/database.h"
#include "queue/mend.h"
#include "queue/schema.h"
#include "support/queue_fixture.h"

namespace innkeeper::queue {
namespace {

using namespace std::chrono_literals;

// Action of this process at its first arrival at the step.
class At {
 public:
  At(const char* step, std::function<void()> deed) {
    step_ = step, act_ = std::move(deed);
    lease::kill_point = [](const char* name) {
      if (!act_ || step_ != name) return;
      const std::function<void()> act = std::exchange(act_, nullptr);
      act();
    };
  }
  ~At() { lease::kill_point = nullptr, act_ = nullptr; }
  static bool was_there() { return !act_; }

 private:
  static inline std::string step_;
  static inline std::function<void()> act_;
};

class ReplacedTest : public TemporaryQueueDirectoryTest {
 protected:
  // A queue with one job, whose number its output keeps.
  void SetUp() override {
    Store made = store();
    ASSERT_EQ(good(made.add(spec())), std::vector<JobId>{1});
    ASSERT_TRUE(made.set(kPausedSetting, 1).ok());
    std::filesystem::create_directories(directory_->output_directory());
    close(open(directory_->output(1, 1).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  }
  // The log has a copy, so that mending can read all jobs.
  void overwrite_the_first_page() const {
    Database database = good(Database::open(directory_->database(), Durable::processes, kSchema));
    EXPECT_TRUE(database.execute("CREATE TABLE another(x); DROP TABLE another").ok());
    const int file = open(directory_->database().c_str(), O_WRONLY | O_CLOEXEC);
    const std::string garbage(4096, 'x');
    EXPECT_EQ(pwrite(file, garbage.data(), garbage.size(), 0), ssize_t{4096});
    close(file);
  }
  // Another thread mends the store. It must wait for the locks that this process holds.
  void mending_waits() {
    mending_ = std::async(std::launch::async, [this] { return mend(*directory_); });
    EXPECT_EQ(mending_->wait_for(200ms), std::future_status::timeout);
  }

  std::optional<std::future<Result<bool>>> mending_;
};

TEST_F(ReplacedTest, ADatabaseLostWhileItIsOpenedIsNotCreatedAgain) {
  for (const bool removed : {false, true}) {
    const At at("database looked at", [&] {
      const std::string file = directory_->database();
      EXPECT_EQ(removed ? unlink(file.c_str()) : truncate(file.c_str(), 0), 0);
    });
    Queue queue = outer_.queue();
    EXPECT_TRUE(At::was_there());
    EXPECT_NE(good(queue.said_of_damage()), "") << removed;
    EXPECT_EQ(good(queue.show(1)).id, 1) << removed;
    EXPECT_GT(good(queue.add(spec())).at(0), 1) << removed;
  }
}

TEST_F(ReplacedTest, AMissingDatabaseOfJobsIsNotMadeByItsOpening) {
  for (const char* end : {"", "-wal", "-shm"}) unlink((directory_->database() + end).c_str());
  EXPECT_EQ(Store::open(*directory_, Durable::processes).status().code(), Code::damaged);
  EXPECT_EQ(Store::open(*directory_, Durable::power).status().code(), Code::damaged);
  EXPECT_NE(access(directory_->database().c_str(), F_OK), 0);
}

TEST_F(ReplacedTest, NothingIsMendedWhileItIsOpened) {
  const At at("database looked at", [&] {
    overwrite_the_first_page();
    mending_waits();
  });
  (void)Store::open(*directory_, Durable::processes);
  ASSERT_TRUE(mending_);
  EXPECT_TRUE(good(mending_->get()));
}

TEST_F(ReplacedTest, AJobThatIsAddedWhileOthersMendIsKept) {
  Queue queue = outer_.queue();
  const At at("database asked", [&] {
    overwrite_the_first_page();
    mending_waits();
  });
  const JobId added = good(queue.add(spec())).at(0);
  ASSERT_TRUE(mending_);
  EXPECT_TRUE(good(mending_->get()));
  Queue another = outer_.queue();
  EXPECT_EQ(good(another.show(added)).id, added);
}

TEST_F(ReplacedTest, AWaitFollowsToTheNewDatabase) {
  Queue queue = outer_.queue();
  overwrite_the_first_page();
  ASSERT_TRUE(good(mend(*directory_)));
  const JobId added = good(queue.add(spec())).at(0);
  EXPECT_EQ(good(outer_.queue().show(added)).id, added);
}

}  // namespace
}  // namespace innkeeper::queue
