// Whether plans are suspended by what they cost, and tried again.
#include "plan/score.h"

#include <gtest/gtest.h>

#include <vector>

namespace innkeeper::plan {
namespace {

constexpr int64_t kRound = 400;  // operators

// A program whose rounds take a second on demand, in which a MiB arrives.
class Scored : public ::testing::Test {
 protected:
  void round(double seconds, double arrived = 1) {
    for (int i = 0; i < kRound; ++i) {
      ++now_.operators;
      now_.clock += seconds / kRound;
      now_.model_clock += 1.0 / kRound;
      arrived_ += arrived * static_cast<double>(MiB(1).count()) / kRound;
      by_model_ += static_cast<double>(MiB(1).count()) / kRound;
      now_.arrived = Bytes(static_cast<int64_t>(arrived_));
      now_.model_arrived = Bytes(static_cast<int64_t>(by_model_));
      score_.count(now_);
    }
  }
  // Rounds of on-demand movement until it is tried again; -1: it is not.
  int rounds_until_resumed(int most) {
    for (int rounds = 0; rounds < most; ++rounds) {
      round(1);
      if (!score_.suspended()) return rounds + 1;
    }
    return -1;
  }
  void begin() {
    for (int i = 0; i < 3; ++i) round(1);
    score_.start(kRound);
  }

  Score::Count now_{.clock = 1};
  Score score_;
  double arrived_ = 0, by_model_ = 0;
};

TEST_F(Scored, WhatSavesTimeGoesOn) {
  begin();
  for (int i = 0; i < 1000; ++i) {
    round(i % 3 == 0 ? 1.2 : 0.8);
    ASSERT_FALSE(score_.suspended()) << i;
  }
}

TEST_F(Scored, ThePriceOfTheFirstRoundIsPaid) {
  begin();
  round(1.8);
  EXPECT_FALSE(score_.suspended());
  for (int i = 0; i < 100; ++i) round(0.95);
  EXPECT_FALSE(score_.suspended());
}

TEST_F(Scored, WhatCostsMoreIsSuspendedBeforeItHasCostTwoRounds) {
  for (const double slower : {1.05, 1.3, 2.0, 5.0}) {
    SCOPED_TRACE(slower);
    score_ = {};
    begin();
    double lost = 0;
    while (!score_.suspended() && lost < 3) {
      round(slower);
      lost += slower - 1;
    }
    EXPECT_TRUE(score_.suspended());
    EXPECT_LT(lost, slower < 2 ? 1.5 : slower) << "but for the round in which it is noticed";
  }
}

TEST_F(Scored, ItIsTriedAgainEverMoreRarely) {
  begin();
  std::vector<int> pauses;
  for (int tries = 0; tries < 10; ++tries) {
    for (int i = 0; i < 100 && !score_.suspended(); ++i) round(1.3);
    ASSERT_TRUE(score_.suspended());
    pauses.push_back(rounds_until_resumed(10'000));
    ASSERT_GT(pauses.back(), 10);
  }
  EXPECT_GT(pauses[9], 4 * pauses[4]);
}

TEST_F(Scored, AllTriesTogetherCostASmallPartOfAllTime) {
  begin();
  double taken = 0;
  constexpr int kRounds = 5000;
  for (int i = 0; i < kRounds; ++i) {
    const double seconds = score_.suspended() ? 1 : 1.3;
    round(seconds);
    taken += seconds;
  }
  EXPECT_LT(taken, 1.02 * kRounds);
}

TEST_F(Scored, AProgramThatChangesMayBePlannedAgain) {
  begin();
  for (int i = 0; i < 50; ++i) round(0.7);
  for (int i = 0; i < 10; ++i) round(score_.suspended() ? 1 : 1.5);
  ASSERT_TRUE(score_.suspended());
  EXPECT_GT(rounds_until_resumed(1000), 0);
  for (int i = 0; i < 50; ++i) round(0.7);
  EXPECT_FALSE(score_.suspended());
}

TEST_F(Scored, WhatHasSavedMuchIsTrustedAgain) {
  begin();
  for (int i = 0; i < 7; ++i) {
    for (int k = 0; k < 100 && !score_.suspended(); ++k) round(1.3);
    ASSERT_GT(rounds_until_resumed(10'000), 0);
  }
  for (int i = 0; i < 50; ++i) round(0.8);
  for (int i = 0; i < 10; ++i) round(score_.suspended() ? 1 : 1.5);
  ASSERT_TRUE(score_.suspended());
  EXPECT_LT(rounds_until_resumed(1000), 40);
}

TEST_F(Scored, MoreBytesAreNoReasonWhereTimeIsSaved) {
  begin();
  for (int i = 0; i < 100; ++i) round(0.8, 1.5);
  EXPECT_FALSE(score_.suspended());
}

TEST_F(Scored, MoreBytesForNothingAreOne) {
  begin();
  for (int i = 0; i < 20; ++i) round(1, score_.suspended() ? 1 : 1.5);
  EXPECT_TRUE(score_.suspended());
}

TEST_F(Scored, WithoutAClockBytesAloneCount) {
  now_.clock = 0;
  begin();
  for (int i = 0; i < 30; ++i) {
    round(0, 0.9);
    ASSERT_FALSE(score_.suspended());
  }
  int planned = 0;
  for (int i = 0; i < 100; ++i) {
    planned += score_.suspended() ? 0 : 1;
    round(0, score_.suspended() ? 1 : 1.5);
  }
  EXPECT_LT(planned, 20);
}

TEST_F(Scored, TheModelMayBeWrongByAFactor) {
  for (int i = 0; i < 3; ++i) round(1.4);  // what it says takes a second
  score_.start(kRound);
  for (int i = 0; i < 100; ++i) round(1.35);
  EXPECT_FALSE(score_.suspended());
  for (int i = 0; i < 20; ++i) round(score_.suspended() ? 1.4 : 1.6);
  EXPECT_TRUE(score_.suspended());
}

TEST_F(Scored, NothingIsSuspendedThatHasNotBegun) {
  for (int i = 0; i < 100; ++i) round(3, 3);
  EXPECT_FALSE(score_.suspended());
}

}  // namespace
}  // namespace innkeeper::plan
