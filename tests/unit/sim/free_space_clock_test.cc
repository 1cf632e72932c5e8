// The virtual time from which each byte is free.
#include "base/free_space_clock.h"

#include <gtest/gtest.h>

namespace innkeeper {
namespace {

TEST(FreeSpaceClock, WhatWasNeverUsedIsFreeFromTheStart) {
  FreeSpaceClock clock(100);
  EXPECT_EQ(clock.take_oldest(100), 0);
}

TEST(FreeSpaceClock, CopiesTakeWhatIsFreeForLongest) {
  FreeSpaceClock clock(100);
  (void)clock.take_oldest(100);
  clock.give(5, 30);
  clock.give(3, 30);
  EXPECT_EQ(clock.take_oldest(20), 3);
  EXPECT_EQ(clock.take_oldest(20), 5) << "10 of them are free from 3 on, 10 from 5 on";
}

TEST(FreeSpaceClock, KernelsTakeWhatBecameFreeLast) {
  FreeSpaceClock clock(100);
  (void)clock.take_oldest(90);
  clock.give(3, 10);
  clock.give(7, 10);
  EXPECT_EQ(clock.take_newest(10, 5), 0) << "it need not wait";
  EXPECT_EQ(clock.take_oldest(10), 0) << "the bytes of 3 went to the kernel";
  EXPECT_EQ(clock.take_newest(10, 5), 7) << "nothing else is left";
}

TEST(FreeSpaceClock, ALowerLimitTakesSpaceAway) {
  FreeSpaceClock clock(100);
  (void)clock.take_oldest(80);
  clock.set_limit(70, 1);  // 10 more than are free.
  clock.give(4, 20);
  EXPECT_EQ(clock.take_oldest(10), 4);
  clock.set_limit(90, 9);
  EXPECT_EQ(clock.take_oldest(20), 9);
}

}  // namespace
}  // namespace innkeeper
