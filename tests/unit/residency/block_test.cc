// The atomic word of a replica, on which the fast path of an operator rests.
#include "residency/block/block.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace innkeeper {
namespace {

TEST(ReplicaWord, PinsWhatIsValidAndOpenOnly) {
  struct Row {
    ReplicaState state;
    bool read, write;
  };
  for (const Row& row : {Row{ReplicaState::absent, false, false}, Row{ReplicaState::arriving, false, false},
                         Row{ReplicaState::shared, true, false}, Row{ReplicaState::owned, true, true}}) {
    ReplicaWord word;
    word.set_state(row.state);
    EXPECT_EQ(word.try_pin(false), row.read) << to_string(row.state);
    EXPECT_EQ(word.try_pin(true), row.write) << to_string(row.state);
    EXPECT_EQ(word.pins(), uint32_t{row.read} + uint32_t{row.write});
    EXPECT_EQ(word.state(), row.state);
    ReplicaWord closed;
    closed.set_state(row.state);
    closed.close();
    EXPECT_FALSE(closed.try_pin(false));
    EXPECT_FALSE(closed.try_pin(true));
    EXPECT_EQ(closed.pins(), 0u);
  }
}

TEST(ReplicaWord, I3IsNotClosedWhileItIsPinned) {
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  ASSERT_TRUE(word.try_pin(true));
  ASSERT_TRUE(word.try_pin(false));
  EXPECT_FALSE(word.close_if_unpinned());
  EXPECT_FALSE(word.is_closed());
  word.remove_pin(true);
  EXPECT_EQ(word.pins(), 1u);
  EXPECT_FALSE(word.close_if_unpinned());
  word.remove_pin(false);
  EXPECT_EQ(word.pins(), 0u);
  EXPECT_TRUE(word.close_if_unpinned());
  EXPECT_TRUE(word.close_if_unpinned()) << "closing twice is closing once";
  EXPECT_TRUE(word.is_closed());
  word.open();
  EXPECT_TRUE(word.try_pin(true));
}

TEST(ReplicaWord, ChangesItsStateAndKeepsPinsAndFlag) {
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  word.add_pin(false);
  word.add_pin(true);
  word.close();
  word.set_state(ReplicaState::shared);
  EXPECT_EQ(word.state(), ReplicaState::shared);
  EXPECT_EQ(word.pins(), 2u);
  EXPECT_EQ(word.writers(), 1u);
  EXPECT_TRUE(word.is_closed());
}

TEST(ReplicaWord, SharesWhatNoOperatorWrites) {
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  ASSERT_TRUE(word.try_pin(true));
  ASSERT_TRUE(word.try_pin(true)) << "two views of one block";
  ASSERT_TRUE(word.try_pin(false));
  EXPECT_EQ(word.writers(), 2u);
  EXPECT_FALSE(word.try_share());
  word.remove_pin(true);
  EXPECT_FALSE(word.try_share());
  EXPECT_EQ(word.state(), ReplicaState::owned);
  word.end_write();  // The writer's pin stays.
  EXPECT_TRUE(word.try_share());
  EXPECT_EQ(word.state(), ReplicaState::shared);
  EXPECT_EQ(word.pins(), 2u);
  EXPECT_FALSE(word.try_pin(true)) << "a writer claims it first";
  EXPECT_TRUE(word.try_pin(false));
}

// Among many threads, either some hold pins or one has closed the replica, never both.
TEST(ReplicaWord, I3PinsAndClosingExcludeEachOther) {
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  int guarded = 0;  // A data race for the thread sanitizer if the two overlap.
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&word, &guarded] {
      for (int round = 0; round < 3000; ++round) {
        if (!word.try_pin(false)) continue;
        EXPECT_EQ(guarded % 2, 0);
        word.remove_pin(false);
      }
    });
  }
  threads.emplace_back([&word, &guarded] {
    for (int round = 0; round < 3000; ++round) {
      if (!word.close_if_unpinned()) continue;
      ++guarded;
      ++guarded;
      word.open();
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(word.pins(), 0u);
  EXPECT_EQ(guarded % 2, 0);
}

// A thread that loses a race for the word tries again: no pin is lost, and none is made up.
TEST(ReplicaWord, CountsThePinsOfThreadsThatContend) {
  constexpr int kRounds = 200'000;
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  std::atomic<int> ready{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < 3) std::this_thread::yield();
      for (int round = 0; round < kRounds; ++round) {
        if (!word.try_pin(round % 2 == 0)) {
          ++refused;
        } else if (round != 0) {
          word.remove_pin(round % 2 == 0);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused.load(), 0) << "it was open all the time";
  EXPECT_EQ(word.pins(), 3u) << "each thread kept its first";
}

}  // namespace
}  // namespace innkeeper
