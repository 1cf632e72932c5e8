// MemoryUsers names by address the kernels and copies that may still touch freed memory, exact to the byte
// for any split into pieces.
#include "device/memory_users.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace innkeeper {
namespace {

class Flag final : public EventState {
 public:
  bool done() override { return done_; }
  Status synchronize() override { return {}; }
  void pass() { done_ = true; }

 private:
  bool done_ = false;
};

class MemoryUsersTest : public testing::Test {
 protected:
  static void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }
  static std::shared_ptr<Flag> event() { return std::make_shared<Flag>(); }
  void give(uintptr_t begin, int64_t size, const Event& user) {
    ASSERT_TRUE(users_.freed(at(begin), Bytes(size), std::span(&user, 1)));
  }
  // An event on the compute queue that covers everything freed so far.
  std::shared_ptr<Flag> mark() {
    auto passed = event();
    users_.recorded(users_.number(), passed);
    return passed;
  }
  // The first copy of all: it starts the watch of freed memory.
  void watch() { (void)users_.take_for_copy(at(1), Bytes(1)); }

  MemoryUsers users_;
};

TEST_F(MemoryUsersTest, ACopyWaitsForWhatIsNamedAndNoKernel) {
  const auto user = event();
  give(1024, 512, user);
  const auto copy = users_.take_for_copy(at(1024), Bytes(512));
  EXPECT_EQ(copy.events, std::vector<Event>{user});
  EXPECT_EQ(copy.number, 0u);
}

TEST_F(MemoryUsersTest, AKernelWaitsForWhatIsNamedOnce) {
  const auto user = event();
  give(1024, 512, user);
  EXPECT_EQ(users_.take_for_kernel(at(1024), Bytes(512)), std::vector<Event>{user});
  EXPECT_TRUE(users_.take_for_kernel(at(1024), Bytes(512)).empty());
}

TEST_F(MemoryUsersTest, ACopyIntoMemoryThatKernelsFreedWaitsForTheirQueue) {
  watch();
  const auto before = mark();
  users_.freed(at(1024), Bytes(512));
  const auto none_yet = users_.take_for_copy(at(1024), Bytes(512));
  EXPECT_TRUE(none_yet.events.empty()) << "an event of before covers nothing";
  EXPECT_NE(none_yet.number, 0u);
  EXPECT_LE(none_yet.number, users_.number()) << "what is recorded now does";

  users_.freed(at(1024), Bytes(512));
  const auto first = mark();
  const auto later = mark();
  EXPECT_EQ(users_.take_for_copy(at(1024), Bytes(512)).events, std::vector<Event>{first});
}

TEST_F(MemoryUsersTest, KernelsWaitForNoneOfTheirOwn) {
  watch();
  users_.freed(at(1024), Bytes(512));
  EXPECT_TRUE(users_.take_for_kernel(at(1024), Bytes(512)).empty());
}

TEST_F(MemoryUsersTest, OfUnwatchedMemoryTheQueueSoFarIsTheUser) {
  users_.freed(at(1024), Bytes(512));  // No watch was active.
  EXPECT_EQ(users_.size(), 0u);
  EXPECT_NE(users_.take_for_copy(at(1024), Bytes(512)).number, 0u);
  const auto user = event();
  give(1024, 512, user);
  const auto longer = users_.take_for_copy(at(1024), Bytes(513));
  EXPECT_EQ(longer.events, std::vector<Event>{user});
  EXPECT_NE(longer.number, 0u) << "a byte at the end";
  give(1024, 256, user);
  give(1536, 256, user);
  EXPECT_NE(users_.take_for_copy(at(1024), Bytes(768)).number, 0u) << "a hole";
}

TEST_F(MemoryUsersTest, APieceHasTheUsersOfAllItLiesOn) {
  const std::array<std::shared_ptr<Flag>, 3> users{event(), event(), event()};
  for (uintptr_t i = 0; i < 3; ++i) give(1000 + 100 * i, 100, users[i]);
  const auto piece = users_.take_for_copy(at(1050), Bytes(200));
  EXPECT_EQ(std::set<Event>(piece.events.begin(), piece.events.end()),
            std::set<Event>(users.begin(), users.end()));
  EXPECT_EQ(piece.number, 0u);
  EXPECT_EQ(users_.take_for_copy(at(1000), Bytes(50)).events, std::vector<Event>{users[0]});
  EXPECT_EQ(users_.take_for_copy(at(1250), Bytes(50)).events, std::vector<Event>{users[2]});
  EXPECT_EQ(users_.size(), 0u);
}

TEST_F(MemoryUsersTest, WhatIsTakenFromTheMiddleLeavesBothEnds) {
  const auto user = event();
  give(1000, 300, user);
  EXPECT_EQ(users_.take_for_kernel(at(1100), Bytes(100)), std::vector<Event>{user});
  EXPECT_EQ(users_.size(), 2u);
  EXPECT_EQ(users_.take_for_copy(at(1000), Bytes(100)).number, 0u);
  EXPECT_EQ(users_.take_for_copy(at(1200), Bytes(100)).events, std::vector<Event>{user});
}

TEST_F(MemoryUsersTest, WhileMemoryIsUnmappedTheComputeQueueIsToKnowAll) {
  const auto user = event();
  give(1000, 100, user);
  watch();
  users_.freed(at(2000), Bytes(100));
  EXPECT_EQ(users_.begin_unmapping(), std::vector<Event>{user});
  const Event other = event();
  EXPECT_FALSE(users_.freed(at(3000), Bytes(100), std::span(&other, 1)));
  users_.end_unmapping();
  EXPECT_TRUE(users_.freed(at(3000), Bytes(100), std::span(&other, 1)));
}

TEST_F(MemoryUsersTest, ATenThousandthPieceCostsNoMoreThanTheFirst) {
  const auto user = event();
  user->pass();
  for (uintptr_t i = 0; i < 10'000; ++i) give(4096 + 512 * i, 512, user);
  EXPECT_LT(users_.size(), 2'100u) << "those that are done are made one";
  const auto all = users_.take_for_copy(at(4096), Bytes(512 * 10'000));
  EXPECT_EQ(all.number, 0u) << "and stay known";

  watch();
  for (uintptr_t i = 0; i < 10'000; ++i) {
    users_.freed(at(4096 + 512 * i), Bytes(512));
    if (i % 32 == 0) mark()->pass();
  }
  EXPECT_LT(users_.size(), 2'100u);
}

TEST_F(MemoryUsersTest, AmongManyThoseThatAreNotDoneStay) {
  const auto done = event();
  done->pass();
  const auto pending = event();
  watch();
  give(1000, 8, pending);
  give(2000, 8, done);
  users_.freed(at(3000), Bytes(8));
  const auto unfinished = mark();
  for (uintptr_t i = 0; i < 3'000; ++i) give(8192 + 16 * i, 8, done);  // Separate ranges, which cannot merge.
  EXPECT_EQ(users_.take_for_kernel(at(1000), Bytes(8)), std::vector<Event>{pending});
  EXPECT_TRUE(users_.take_for_copy(at(2000), Bytes(8)).events.empty()) << "who is done is forgotten";
  EXPECT_EQ(users_.take_for_copy(at(3000), Bytes(8)).events, std::vector<Event>{unfinished});
}

// Compares with a model of single bytes.
TEST_F(MemoryUsersTest, AgreesWithAModelOfBytes) {
  constexpr size_t kBytes = 512;
  std::mt19937_64 random(7);
  std::vector<std::set<Event>> named(kBytes);
  // Number of each byte's last release; UINT64_MAX: never freed.
  std::vector<uint64_t> numbers(kBytes, UINT64_MAX);
  std::multimap<uint64_t, Event> marks;
  watch();
  for (int step = 0; step < 30'000; ++step) {
    const size_t begin = random() % kBytes;
    const size_t size = 1 + random() % std::min<size_t>(64, kBytes - begin);
    const auto bytes = Bytes(static_cast<int64_t>(size));
    void* const data = at(4096 + begin);
    switch (random() % 5) {
      case 0: {
        const auto user = event();
        if (random() % 2 == 0) user->pass();
        const std::array<Event, 2> both{user, nullptr};
        // An allocator does the same: a kernel takes the bytes before they are freed.
        (void)users_.take_for_kernel(data, bytes);
        ASSERT_TRUE(users_.freed(data, bytes, both));
        for (size_t i = begin; i < begin + size; ++i) named[i] = {user}, numbers[i] = 0;
        break;
      }
      case 1: {
        (void)users_.take_for_kernel(data, bytes);
        users_.freed(data, bytes);
        for (size_t i = begin; i < begin + size; ++i) named[i] = {}, numbers[i] = users_.number();
        break;
      }
      case 2: {
        const auto passed = mark();
        if (random() % 2 == 0) passed->pass();
        marks.emplace(users_.number(), passed);
        break;
      }
      case 3: {
        std::set<Event> expected;
        for (size_t i = begin; i < begin + size; ++i) {
          expected.insert(named[i].begin(), named[i].end());
          named[i] = {}, numbers[i] = UINT64_MAX;
        }
        const auto events = users_.take_for_kernel(data, bytes);
        EXPECT_EQ(std::set<Event>(events.begin(), events.end()), expected);
        break;
      }
      default: {
        std::set<Event> expected;
        uint64_t number = 0;
        for (size_t i = begin; i < begin + size; ++i) {
          expected.insert(named[i].begin(), named[i].end());
          number = std::max(number, numbers[i]);
          named[i] = {}, numbers[i] = UINT64_MAX;
        }
        const auto users = users_.take_for_copy(data, bytes);
        for (const Event& user : expected) {
          ASSERT_TRUE(std::count(users.events.begin(), users.events.end(), user) == 1);
        }
        if (number == UINT64_MAX) {
          EXPECT_EQ(users.number, users_.number()) << "all so far";
        } else if (number != 0 && users.number == 0) {
          bool covered = false;  // True if a mark recorded at `number` or later names the user.
          for (const auto& [covers, passed] : marks) {
            covered = covered ||
                      (covers >= number && std::count(users.events.begin(), users.events.end(), passed) == 1);
          }
          EXPECT_TRUE(covered) << "step " << step;
        } else if (number != 0) {
          EXPECT_GE(users.number, number);
        } else {
          EXPECT_EQ(users.number, 0u);
          EXPECT_EQ(users.events.size(), expected.size());
        }
      }
    }
    if (HasFailure()) return;
  }
}

TEST_F(MemoryUsersTest, FromManyThreads) {
  std::vector<std::thread> threads;
  for (uintptr_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const uintptr_t mine = (thread + 1) << 24;
      for (uintptr_t i = 0; i < 5'000; ++i) {
        void* const data = at(mine + 512 * (i % 100));
        if (i % 3 == 0) {
          const Event user = event();
          if (!users_.freed(data, Bytes(512), std::span(&user, 1))) users_.freed(data, Bytes(512));
        } else {
          users_.freed(data, Bytes(512));
        }
        if (i % 7 == 0) mark()->pass();
        if (i % 50 == 0) {
          (void)users_.begin_unmapping();
          users_.end_unmapping();
        }
        if (i % 2 == 0) {
          (void)users_.take_for_copy(data, Bytes(512));
        } else {
          (void)users_.take_for_kernel(data, Bytes(512));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(users_.size(), 0u);
}

}  // namespace
}  // namespace innkeeper
