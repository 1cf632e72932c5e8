// Engine records that `innkeeper top` reads: the record, the file's life, hostile files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "board/publisher.h"
#include "board/reader.h"
#include "lease/live_file.h"
#include "support/child.h"
#include "support/environment.h"
#include "support/temporary_lease_directory.h"
#include "support/watchdog.h"

namespace innkeeper::board {
namespace {

using namespace std::chrono_literals;
using test::TemporaryLeaseDirectory;

Record example() {
  return {
      4711,
      4026531836,
      "python train.py --lr 0.1",
      {{"cuda:0", GiB(130), GiB(96), GiB(128), 12345, 1000000}, {"host", GiB(500), Bytes(0), GiB(7), 0, 3}}};
}

TEST(BoardRecord, IsReadAsItWasWritten) {
  EXPECT_EQ(decode(encode(example()).value()), example());
  Record large = example();
  large.nodes.assign(kMaxNodes, {std::string(kMaxNameLength, 'x'), Bytes(INT64_MAX), Bytes(INT64_MAX),
                                 Bytes(INT64_MAX), INT64_MAX, INT64_MAX});
  large.command = std::string(1000, 'c');
  const std::string text = encode(large).value();
  EXPECT_LE(text.size(), kFileBytes);
  EXPECT_EQ(decode(text)->nodes, large.nodes);
}

TEST(BoardRecord, WhatOthersWouldNotReadIsNotWritten) {
  Record bad = example();
  bad.nodes[0].resident = Bytes(-1);
  EXPECT_FALSE(encode(bad).ok());
  bad = example();
  bad.nodes[0].name = "two words";
  EXPECT_FALSE(encode(bad).ok());
  bad = example();
  bad.nodes.assign(kMaxNodes + 1, bad.nodes[1]);
  EXPECT_NE(encode(bad).status().message().find("17 nodes"), std::string::npos);
}

TEST(BoardRecord, AnyBytesAreReadOrRefused) {
  const std::string good = encode(example()).value();
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same bytes each time
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (int change = static_cast<int>(random() % 4); change >= 0; --change)
      text[random() % text.size()] = static_cast<char>(random());
    if (random() % 4 == 0) text.resize(random() % text.size());
    const std::optional<Record> read = decode(text);
    if (!read) continue;
    EXPECT_EQ(*read, example()) << text;  // The checksum rejects every change of the body.
  }
  EXPECT_EQ(decode(""), std::nullopt);
  EXPECT_EQ(decode("innkeeper-board 1 99999999999999999999 0\n"), std::nullopt);
}

class BoardTest : public testing::Test {
 protected:
  BoardTest() { environment_.set("INNKEEPER_LEASE_DIR", directory_.path()); }

  std::vector<NodeRow> look() const { return {{"host", GiB(1), Bytes(resident_.load()), GiB(1), 0, 0}}; }
  std::unique_ptr<Publisher> publish() {
    return std::make_unique<Publisher>([this] { return look(); }, 1ms);
  }
  std::vector<Shown> shown() const { return read(*directory_.directory()); }
  // Waits until one process is listed, with `bytes` resident.
  void wait_for_bytes(int64_t resident) const {
    for (;;) {
      const std::vector<Shown> all = shown();
      if (all.size() == 1 && all[0].record.nodes.at(0).resident == Bytes(resident)) return;
      std::this_thread::sleep_for(1ms);
    }
  }

  test::Watchdog watchdog_{60s};
  TemporaryLeaseDirectory directory_;
  test::Environment environment_;
  std::atomic<int64_t> resident_{5};
};

TEST_F(BoardTest, ShowsWhatIsResidentNowUntilItEnds) {
  std::unique_ptr<Publisher> publisher = publish();
  wait_for_bytes(5);
  EXPECT_EQ(shown()[0].uid, geteuid());
  EXPECT_EQ(shown()[0].record.pid, getpid());
  EXPECT_NE(shown()[0].record.command.find("test"), std::string::npos);
  resident_ = 123456789;
  wait_for_bytes(123456789);
  resident_ = 7;  // Writes a shorter text over a longer one.
  wait_for_bytes(7);
  publisher.reset();
  EXPECT_EQ(directory_.files(), 0);
}

TEST_F(BoardTest, IsNoLease) {
  const std::unique_ptr<Publisher> publisher = publish();
  wait_for_bytes(5);
  EXPECT_TRUE(directory_.arbiter().list().value().empty());
  EXPECT_TRUE(directory_.arbiter().acquire(test::whole(2), test::idle_machine(2)).ok());
  EXPECT_EQ(shown().size(), 1U);
}

TEST_F(BoardTest, MakesNoDirectoryAndUsesOneThatComes) {
  const std::string path = directory_.path() + "-later";
  environment_.set("INNKEEPER_LEASE_DIR", path);
  const std::unique_ptr<Publisher> publisher = publish();
  std::this_thread::sleep_for(20ms);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  const auto made = lease::Directory::open(path).value();
  while (read(*made).empty()) std::this_thread::sleep_for(1ms);
}

TEST_F(BoardTest, ComesBackWhenItsFileIsRemoved) {
  const std::unique_ptr<Publisher> publisher = publish();
  wait_for_bytes(5);
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
    if (entry.path().filename() != lease::kLockName) std::filesystem::remove(entry.path());
  wait_for_bytes(5);
}

TEST_F(BoardTest, WhatAKilledProcessLeftIsNotShownAndIsRemovedByTheNext) {
  const pid_t child = test::in_child([this] {
    const std::unique_ptr<Publisher> publisher = publish();
    std::this_thread::sleep_for(1h);
    return 0;
  });
  wait_for_bytes(5);
  EXPECT_EQ(shown()[0].record.pid, child);
  kill(child, SIGKILL);
  test::wait_for(child);
  EXPECT_TRUE(shown().empty());
  EXPECT_EQ(directory_.files(), 1);
  std::unique_ptr<Publisher> publisher = publish();
  wait_for_bytes(5);
  EXPECT_EQ(directory_.files(), 1);
}

TEST_F(BoardTest, AChildOfForkShowsNothingAndLeavesItsParentsFile) {
  std::unique_ptr<Publisher> publisher = publish();
  wait_for_bytes(5);
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t child = test::in_child([&] {
    publisher.reset();  // Must not wait for the thread, which the child lacks.
    char byte = 0;
    close(gate[1]);
    return static_cast<int>(::read(gate[0], &byte, 1));  // lives on
  });
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(shown().size(), 1U);
  resident_ = 6;
  wait_for_bytes(6);
  publisher.reset();
  EXPECT_EQ(directory_.files(), 0);
  close(gate[1]);
  EXPECT_EQ(test::wait_for(child), 0);
  close(gate[0]);
}

TEST_F(BoardTest, ThingsThatAreNoFilesOfPublishersAreNotShown) {
  const auto path = [&](const std::string& name) { return directory_.path() + "/" + name; };
  ASSERT_EQ(mkdir(path("r00000000000000d0").c_str(), 0777), 0);
  ASSERT_EQ(mkfifo(path("r00000000000000f0").c_str(), 0666), 0);
  ASSERT_EQ(symlink("/etc/passwd", path("r0000000000000001").c_str()), 0);
  const std::string good = encode(example()).value();
  const int lie = open(path("r0000000000000002").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_TRUE(lease::lock_for_life(lie));
  ASSERT_EQ(write(lie, "innkeeper-board 1 4 0\nlies", 26), 26);
  std::ofstream(path("r0000000000000003")) << good;  // dead
  const int named = open(path("r0000000000000004x").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_TRUE(lease::lock_for_life(named));
  ASSERT_EQ(write(named, good.data(), good.size()), ssize_t(good.size()));
  EXPECT_TRUE(shown().empty());
  ASSERT_EQ(pwrite(lie, good.data(), good.size(), 0), ssize_t(good.size()));
  EXPECT_EQ(shown().size(), 1U);
  close(lie);
  close(named);
}

TEST_F(BoardTest, OneUserShowsSoManyAndNoMore) {
  const std::string good = encode(example()).value();
  std::vector<int> held;
  for (int i = 0; i < kMaxFilesPerUser + 10; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "/r%016x", static_cast<unsigned>(i));
    held.push_back(open((directory_.path() + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_TRUE(lease::lock_for_life(held.back()));
    ASSERT_EQ(write(held.back(), good.data(), good.size()), ssize_t(good.size()));
  }
  EXPECT_EQ(shown().size(), static_cast<size_t>(kMaxFilesPerUser));
  for (const int fd : held) close(fd);
}

}  // namespace
}  // namespace innkeeper::board
