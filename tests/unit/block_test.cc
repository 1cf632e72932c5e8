// The atomic word of a replica: what the fast path of an operator rests on.
#include "residency/block.h"

#include <gtest/gtest.h>

#include <thread>

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

TEST(ReplicaWord, I3IsNotClosedWhileSomebodyPinsIt) {
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  ASSERT_TRUE(word.try_pin(true));
  ASSERT_TRUE(word.try_pin(false));
  EXPECT_FALSE(word.close_if_unpinned());
  EXPECT_FALSE(word.is_closed());
  EXPECT_EQ(word.remove_pin(), 1u);
  EXPECT_FALSE(word.close_if_unpinned());
  EXPECT_EQ(word.remove_pin(), 0u);
  EXPECT_TRUE(word.close_if_unpinned());
  EXPECT_TRUE(word.close_if_unpinned()) << "closing twice is closing once";
  EXPECT_TRUE(word.is_closed());
  word.open();
  EXPECT_TRUE(word.try_pin(true));
}

TEST(ReplicaWord, ChangesItsStateAndKeepsPinsAndFlag) {
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  word.add_pin();
  word.add_pin();
  word.close();
  word.set_state(ReplicaState::shared);
  EXPECT_EQ(word.state(), ReplicaState::shared);
  EXPECT_EQ(word.pins(), 2u);
  EXPECT_TRUE(word.is_closed());
}

// Of many threads, either some hold pins or one has closed the replica, never both.
TEST(ReplicaWord, I3PinsAndClosingExcludeEachOther) {
  ReplicaWord word;
  word.set_state(ReplicaState::owned);
  int guarded = 0;  // a data race, for the thread sanitizer, if the two overlap
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&word, &guarded] {
      for (int round = 0; round < 3000; ++round) {
        if (!word.try_pin(false)) continue;
        EXPECT_EQ(guarded % 2, 0);
        word.remove_pin();
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

}  // namespace
}  // namespace innkeeper
