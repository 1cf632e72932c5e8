// A planner without an engine: it follows a program, loses it and finds it again.
#include "plan/planner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "support/planner_alone.h"

namespace innkeeper::plan {
namespace {

TEST(Planner, FollowsLeavesAndComesBack) {
  ProgramTracker it(KiB(250));
  std::vector<Name> weights;
  for (int i = 0; i < 300; ++i) weights.push_back(it.meet());
  const auto period = [&] {
    int orders = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const Name fresh = it.meet();
      orders += it.op({read(weights[i], 1), {fresh, Bytes(512 + 64 * static_cast<int64_t>(i % 7)), true}});
      it.planner.forget(fresh);
    }
    return orders;
  };
  EXPECT_EQ(period(), 0);
  EXPECT_EQ(period(), 0);
  EXPECT_TRUE(it.planner.follows());
  EXPECT_GT(period(), 0);
  const int orders = period();
  EXPECT_GT(orders, 0);
  EXPECT_EQ(period(), orders);
  EXPECT_EQ(it.planner.periods(), 3);

  // The plan moves weights, which operators only read and which so have copies, and results of the period,
  // which die.
  std::vector<plan::Moved> moved = it.planner.moved();
  Bytes arriving{0};
  for (const plan::Moved& each : moved) {
    EXPECT_NE(each.block, nullptr) << "a passing one is forgotten at once";
    EXPECT_EQ(each.leaving, Bytes(0));
    arriving += each.arriving;
  }
  EXPECT_EQ(arriving, it.planner.cost().arriving);

  // One more operator in between, which makes a block.
  it.op({{it.meet(), KiB(3), true}});
  EXPECT_FALSE(it.planner.follows());
  EXPECT_EQ(it.planner.divergences(), 1);
  const int rest = period();
  EXPECT_TRUE(it.planner.follows()) << "taken up again within the period";
  EXPECT_GT(rest, 0);
  EXPECT_LE(rest, orders);
  EXPECT_EQ(period(), orders);
}

// The planner keeps the last 65,536 names in a circular table; it also finds a block whose entry was
// overwritten.
TEST(Planner, MovesWhatHasOutlivedManyNames) {
  ProgramTracker it(KiB(250));
  std::vector<Name> weights;
  for (int i = 0; i < 300; ++i) weights.push_back(it.meet());
  const auto period = [&] {
    int orders = 0;
    for (const Name weight : weights) {
      const Name fresh = it.meet();
      orders += it.op({read(weight, 1), {fresh, Bytes(512), true}});
      it.planner.forget(fresh);
    }
    return orders;
  };
  for (int i = 0; i < 4; ++i) period();
  const int orders = period();
  EXPECT_GT(orders, 0);
  for (int i = 0; i < 300; ++i) period();
  EXPECT_EQ(period(), orders);
}

TEST(Planner, ReportsWhichPeriodsCopiesAreCounted) {
  Bytes space = KiB(150);
  ProgramTracker it([&space](NodeId) { return space; });
  std::vector<Name> weights;
  for (int i = 0; i < 200; ++i) weights.push_back(it.meet());
  const auto period = [&] {
    for (const Name weight : weights) {
      it.op({{weight, KiB(1), true}});
      it.op({read(weight, 1)});
    }
  };
  EXPECT_TRUE(it.planner.moved().empty());
  for (int i = 0; i < 4; ++i) period();
  ASSERT_EQ(it.planner.periods(), 2);
  std::vector<plan::Moved> moved = it.planner.moved();
  ASSERT_GT(moved.size(), 40u);
  for (const plan::Moved& each : moved) {
    EXPECT_NE(each.block, nullptr);
    EXPECT_EQ(each.arriving, KiB(1));
    EXPECT_EQ(each.leaving, KiB(1)) << "it is written, though what came last was a read";
  }

  space = KiB(100);
  period();
  EXPECT_TRUE(it.planner.moved().empty()) << "nobody has followed the new schedule yet";
  period();
  const size_t more = it.planner.moved().size();
  EXPECT_GT(more, moved.size());

  for (const Name weight : weights) it.planner.forget(weight);
  EXPECT_TRUE(it.planner.moved().empty()) << "what has died does not move, and no period has made it";
}

TEST(Planner, OrdersNothingWhereAllFits) {
  ProgramTracker it(KiB(100));
  std::vector<Name> weights;
  for (int i = 0; i < 40; ++i) weights.push_back(it.meet());
  for (int period = 0; period < 10; ++period)
    for (const Name weight : weights) EXPECT_EQ(it.op({read(weight)}), 0);
  EXPECT_FALSE(it.planner.follows());
  EXPECT_EQ(it.planner.working_set().at(kGpu), KiB(40)) << "others may have the rest";
  EXPECT_EQ(it.planner.working_set().at(NodeId{1}), Bytes(0));
}

// A loop whose state is one block at first and another later, so its results differ between periods.
// It reads 300 weights in a fixed order; 250 fit.
class Timed : public ::testing::Test {
 protected:
  Timed() {
    for (int i = 0; i < 300; ++i) weights_.push_back(it_.meet());
    it_.kernel = kAsked;
    EXPECT_EQ(period(kAsked), 0);
    EXPECT_EQ(period(kAsked), 0);
  }
  int period(double step) {
    it_.step = step;
    int orders = 0;
    for (const Name weight : weights_) orders += it_.op({read(weight)});
    return orders;
  }

  static constexpr double kAsked = 1e-6;
  Bytes space_ = KiB(250);
  ProgramTracker it_{[this](NodeId) { return space_; }};
  std::vector<Name> weights_;
};

TEST_F(Timed, AScheduleThatTakesLongerThanOnDemandIsSuspendedAndTriedAgain) {
  EXPECT_GT(period(kAsked), 0);
  int planned = 0;
  for (int i = 0; i < 100; ++i) planned += period(kAsked * 1.3) > 0 ? 1 : 0;
  EXPECT_GT(planned, 1);
  EXPECT_LT(planned, 8);
  for (int i = 0; i < 400; ++i) planned += period(kAsked) > 0 ? 1 : 0;
  EXPECT_GT(planned, 100) << "it costs nothing any more";
}

TEST_F(Timed, ASuspendedScheduleIsNotReplaced) {
  EXPECT_GT(period(kAsked), 0);
  for (int i = 0; i < 10; ++i) period(kAsked * 1.5);
  ASSERT_EQ(period(kAsked), 0);
  const Bytes arriving = it_.planner.cost().arriving;
  for (int i = 0; i < 3; ++i) {
    it_.planner.unplanned(kGpu, KiB(40));  // The period ran on demand.
    EXPECT_EQ(period(kAsked), 0);
    EXPECT_EQ(it_.planner.cost().arriving, arriving);
  }
}

TEST_F(Timed, NothingIsSaidByAClockThatStandsStill) {
  for (int i = 0; i < 100; ++i) EXPECT_GT(period(0), 0);
}

TEST(Planner, ALoopThatGoesOnWithAnotherBlockIsNoPeriodYet) {
  ProgramTracker it(KiB(30));
  std::vector<Name> weights;
  for (int i = 0; i < 40; ++i) weights.push_back(it.meet());
  Name state = it.meet();
  for (int period = 0; period < 20; ++period) {
    it.op({read(state), {weights[0], KiB(2), true}});
    for (size_t i = 1; i < 39; ++i) it.op({read(weights[i]), {weights[i + 1], KiB(2), true}});
    if (period == 0) state = it.meet();
    it.op({read(weights[39]), {state, KiB(2), true}});
  }
  EXPECT_TRUE(it.planner.follows());
}

// A long program, with background jobs that run when the test calls do_jobs().
class PlannedInBackground : public ::testing::Test {
 protected:
  static constexpr int64_t kBlocks = 3000;

  PlannedInBackground() {
    for (int64_t i = 0; i < kBlocks; ++i) blocks.push_back(it.meet());
  }
  int part(int64_t first, int64_t last) {
    int orders = 0;
    for (int64_t i = first; i < last; ++i) orders += it.op({read(blocks[static_cast<size_t>(i)])});
    return orders;
  }
  int period() { return part(0, kBlocks); }
  void do_jobs() {
    for (const auto& job : std::exchange(jobs, {})) job();
  }

  Bytes space = KiB(kBlocks - 500);
  std::vector<std::function<void()>> jobs;
  ProgramTracker it{[this](NodeId) { return space; }, [this](auto job) { jobs.push_back(std::move(job)); }};
  std::vector<Name> blocks;
};

TEST_F(PlannedInBackground, BeginsInTheMiddleOfAPeriodAsSoonAsThereIsAPlan) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(period(), 0);
  ASSERT_EQ(jobs.size(), 1u) << "started once";
  EXPECT_FALSE(it.planner.follows());
  EXPECT_EQ(it.planner.periods(), 0) << "nothing is planned in them";
  EXPECT_EQ(it.planner.divergences(), 0);
  EXPECT_EQ(part(0, 50), 0);
  do_jobs();
  const int rest = part(50, kBlocks);
  EXPECT_TRUE(it.planner.follows());
  EXPECT_GT(rest, 0);
  const int orders = period();
  EXPECT_GE(orders, rest);
  EXPECT_EQ(period(), orders);
  EXPECT_EQ(it.planner.periods(), 2) << "from end to end";
  EXPECT_EQ(it.planner.cost().bound, KiB(500));
}

TEST_F(PlannedInBackground, TheOldScheduleHoldsUntilThereIsAnother) {
  for (int i = 0; i < 3; ++i) period();
  do_jobs();
  period();
  const int orders = period();
  space = KiB(kBlocks - 1000);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(period(), orders);
  ASSERT_EQ(jobs.size(), 1u);
  do_jobs();
  period();
  EXPECT_GT(period(), orders);
  EXPECT_EQ(it.planner.cost().bound, KiB(1000));
}

TEST_F(PlannedInBackground, OtherFreeSpaceWaitsForTheScheduleInProgress) {
  for (int i = 0; i < 3; ++i) period();
  do_jobs();
  for (int i = 0; i < 2; ++i) period();
  for (const int64_t less : {1000, 1500, 2000}) {
    space = KiB(kBlocks - less);
    for (int i = 0; i < 5; ++i) period();
  }
  EXPECT_EQ(jobs.size(), 1u);
  for (int i = 0; i < 20; ++i) {
    do_jobs();
    period();
  }
  EXPECT_EQ(it.planner.cost().bound, KiB(2000));
}

TEST_F(PlannedInBackground, WhereTheProgramHasLeftItIsFoundWhenItComesBack) {
  for (int i = 0; i < 3; ++i) period();
  for (int i = 0; i < 20; ++i) it.op({{it.meet(), KiB(3), true}});
  do_jobs();
  EXPECT_FALSE(it.planner.follows());
  EXPECT_EQ(part(0, 8), 0) << "operators that must be the program's";
  EXPECT_GT(part(8, kBlocks), 0);
  EXPECT_TRUE(it.planner.follows());
}

TEST_F(PlannedInBackground, AProgramThatFitsIsNotFollowed) {
  // The period touches all of it, and little of it is alive at once.
  space = KiB(kBlocks - 1);
  const auto period_that_fits = [&] {
    for (size_t i = 0; i < kBlocks / 2; ++i) {
      const Name first = it.meet();
      it.op({read(blocks[i]), {first, KiB(1), true}});
      const Name second = it.meet();
      it.op({read(first), {second, KiB(1), true}});
      it.planner.forget(first);
      it.planner.forget(second);
    }
  };
  size_t looks = 0;
  for (int i = 0; i < 64; ++i) {
    period_that_fits();
    EXPECT_FALSE(it.planner.follows());
    looks += jobs.size();
    do_jobs();
  }
  EXPECT_GE(looks, 2u);
  EXPECT_LE(looks, 7u) << "the later the more often it was";
}

TEST_F(PlannedInBackground, AnInterruptedPlanIsPlannedAgain) {
  for (int i = 0; i < 3; ++i) period();
  it.planner.interrupt();
  do_jobs();  // Their result is discarded.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(period(), 0);
  ASSERT_EQ(jobs.size(), 1u);
  do_jobs();
  EXPECT_GT(period(), 0);
}

TEST_F(PlannedInBackground, AJobMayEndBehindThePlanner) {
  auto planner = std::make_unique<ProgramTracker>([this](NodeId) { return space; },
                                                  [this](auto job) { jobs.push_back(std::move(job)); });
  std::vector<Name> its;
  for (int64_t i = 0; i < kBlocks; ++i) its.push_back(planner->meet());
  for (int period = 0; period < 3; ++period)
    for (const Name block : its) planner->op({read(block)});
  ASSERT_EQ(jobs.size(), 1u);
  planner.reset();
  do_jobs();
}

// Periods that end while the planner follows the inner one count for the outer one, as with accumulated
// gradients.
TEST(Planner, APeriodOfPeriodsIsFoundWhileTheInnerOneIsFollowed) {
  ProgramTracker it(KiB(250));
  std::vector<Name> weights;
  for (int i = 0; i < 300; ++i) weights.push_back(it.meet());
  int64_t before = 0;
  int periods = 0;
  for (; periods < 20; ++periods) {
    before = it.planner.divergences();
    for (int inner = 0; inner < 40; ++inner)
      for (const Name weight : weights) it.op({read(weight)});
    for (const Name weight : weights) it.op({{weight, KiB(1), true}});
    if (periods > 0 && it.planner.divergences() == before) break;
  }
  EXPECT_LE(periods, 2) << "the third one is what the second was";
}

TEST(Planner, AMillionBlocksLeaveNothingBehind) {
  ProgramTracker it(KiB(1));
  const Name elder = it.meet();
  for (int64_t i = 0; i < 1'000'000; ++i) {
    const Name name = it.meet();
    it.op({{name, Bytes(64 * (1 + i * 7919 % 1013)), true}});
    it.planner.forget(name);
  }
  it.planner.forget(elder);
  EXPECT_FALSE(it.planner.follows());
}

}  // namespace
}  // namespace innkeeper::plan
