// The score suspends plans by their cost and tries them again.
#include "plan/score.h"

#include <gtest/gtest.h>

#include <vector>

namespace innkeeper::plan {
namespace {

constexpr int64_t kPeriod = 400;  // operators

// A program whose periods take one second on demand and fetch one MiB.
class Scored : public ::testing::Test {
 protected:
  void period(double seconds, double arrived = 1) {
    for (int i = 0; i < kPeriod; ++i) {
      ++now_.operators;
      now_.clock += seconds / kPeriod;
      now_.model_clock += 1.0 / kPeriod;
      arrived_ += arrived * static_cast<double>(MiB(1).count()) / kPeriod;
      by_model_ += static_cast<double>(MiB(1).count()) / kPeriod;
      now_.arrived = Bytes(static_cast<int64_t>(arrived_));
      now_.model_arrived = Bytes(static_cast<int64_t>(by_model_));
      score_.count(now_);
    }
  }
  // Periods on demand until the score resumes the plan; -1: it does not.
  int periods_until_resumed(int most) {
    for (int periods = 0; periods < most; ++periods) {
      period(1);
      if (!score_.suspended()) return periods + 1;
    }
    return -1;
  }
  void begin() {
    for (int i = 0; i < 3; ++i) period(1);
    score_.start(kPeriod);
  }

  Score::Count now_{.clock = 1};
  Score score_;
  double arrived_ = 0, by_model_ = 0;
};

TEST_F(Scored, WhatSavesTimeGoesOn) {
  begin();
  for (int i = 0; i < 1000; ++i) {
    period(i % 3 == 0 ? 1.2 : 0.8);
    ASSERT_FALSE(score_.suspended()) << i;
  }
}

TEST_F(Scored, ThePriceOfTheFirstPeriodIsPaid) {
  begin();
  period(1.8);
  EXPECT_FALSE(score_.suspended());
  for (int i = 0; i < 100; ++i) period(0.95);
  EXPECT_FALSE(score_.suspended());
}

TEST_F(Scored, WhatCostsMoreIsSuspendedBeforeItHasCostTwoPeriods) {
  for (const double slower : {1.05, 1.3, 2.0, 5.0}) {
    SCOPED_TRACE(slower);
    score_ = {};
    begin();
    double lost = 0;
    while (!score_.suspended() && lost < 3) {
      period(slower);
      lost += slower - 1;
    }
    EXPECT_TRUE(score_.suspended());
    EXPECT_LT(lost, slower < 2 ? 1.5 : slower) << "but for the period in which it is noticed";
  }
}

TEST_F(Scored, ItIsTriedAgainEverMoreRarely) {
  begin();
  std::vector<int> pauses;
  for (int tries = 0; tries < 10; ++tries) {
    for (int i = 0; i < 100 && !score_.suspended(); ++i) period(1.3);
    ASSERT_TRUE(score_.suspended());
    pauses.push_back(periods_until_resumed(10'000));
    ASSERT_GT(pauses.back(), 10);
  }
  EXPECT_GT(pauses[9], 4 * pauses[4]);
}

TEST_F(Scored, AllTriesTogetherCostASmallPartOfAllTime) {
  begin();
  double taken = 0;
  constexpr int kPeriods = 5000;
  for (int i = 0; i < kPeriods; ++i) {
    const double seconds = score_.suspended() ? 1 : 1.3;
    period(seconds);
    taken += seconds;
  }
  EXPECT_LT(taken, 1.02 * kPeriods);
}

TEST_F(Scored, AProgramThatChangesMayBePlannedAgain) {
  begin();
  for (int i = 0; i < 50; ++i) period(0.7);
  for (int i = 0; i < 10; ++i) period(score_.suspended() ? 1 : 1.5);
  ASSERT_TRUE(score_.suspended());
  EXPECT_GT(periods_until_resumed(1000), 0);
  for (int i = 0; i < 50; ++i) period(0.7);
  EXPECT_FALSE(score_.suspended());
}

TEST_F(Scored, WhatHasSavedMuchIsTrustedAgain) {
  begin();
  for (int i = 0; i < 7; ++i) {
    for (int k = 0; k < 100 && !score_.suspended(); ++k) period(1.3);
    ASSERT_GT(periods_until_resumed(10'000), 0);
  }
  for (int i = 0; i < 50; ++i) period(0.8);
  for (int i = 0; i < 10; ++i) period(score_.suspended() ? 1 : 1.5);
  ASSERT_TRUE(score_.suspended());
  EXPECT_LT(periods_until_resumed(1000), 40);
}

TEST_F(Scored, MoreBytesAreNoReasonWhereTimeIsSaved) {
  begin();
  for (int i = 0; i < 100; ++i) period(0.8, 1.5);
  EXPECT_FALSE(score_.suspended());
}

TEST_F(Scored, MoreBytesForNothingAreOne) {
  begin();
  for (int i = 0; i < 20; ++i) period(1, score_.suspended() ? 1 : 1.5);
  EXPECT_TRUE(score_.suspended());
}

TEST_F(Scored, WithoutAClockBytesAloneCount) {
  now_.clock = 0;
  begin();
  for (int i = 0; i < 30; ++i) {
    period(0, 0.9);
    ASSERT_FALSE(score_.suspended());
  }
  int planned = 0;
  for (int i = 0; i < 100; ++i) {
    planned += score_.suspended() ? 0 : 1;
    period(0, score_.suspended() ? 1 : 1.5);
  }
  EXPECT_LT(planned, 20);
}

TEST_F(Scored, TheModelMayBeWrongByAFactor) {
  for (int i = 0; i < 3; ++i) period(1.4);  // The model predicts one second for the period.
  score_.start(kPeriod);
  for (int i = 0; i < 100; ++i) period(1.35);
  EXPECT_FALSE(score_.suspended());
  for (int i = 0; i < 20; ++i) period(score_.suspended() ? 1.4 : 1.6);
  EXPECT_TRUE(score_.suspended());
}

TEST_F(Scored, NothingIsSuspendedThatHasNotBegun) {
  for (int i = 0; i < 100; ++i) period(3, 3);
  EXPECT_FALSE(score_.suspended());
}

}  // namespace
}  // namespace innkeeper::plan
