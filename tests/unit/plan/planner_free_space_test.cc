// The planner's use of the free space it is told, and the working set it reports: of a GPU, and of the host
// that backs it.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "support/planner_alone.h"

namespace innkeeper::plan {
namespace {

// Periods that need more memory than a GPU has, with a host too small for all absent blocks.
class Backed : public testing::Test {
 protected:
  static constexpr NodeId kHost{1};
  static constexpr size_t kBlocks = 400;

  Backed() {
    for (size_t i = 0; i < kBlocks; ++i) blocks_.push_back(tracker_.meet());
  }
  template <typename Each>
  void period(const Each& each) {
    for (const Name block : blocks_) {
      tracker_.planner.ended(kGpu, std::array{Touch{block, KiB(1), true}});
      for (Order order; tracker_.planner.next(order);) each(order);
    }
  }

  // Orders of one planned period, by node and direction.
  std::map<std::pair<NodeId, bool>, int> orders() {
    for (int i = 0; i < 3; ++i) period([](const Order&) {});
    std::map<std::pair<NodeId, bool>, int> counted;
    period([&](const Order& order) { ++counted[{order.node, order.arrives}]; });
    return counted;
  }

  Bytes host_space_ = KiB(100);
  ProgramTracker tracker_{[this](NodeId node) { return node == kGpu ? KiB(200) : host_space_; }, {}, kHost};
  std::vector<Name> blocks_;
};

TEST_F(Backed, BlocksThatTheHostCannotHoldGoToTheDiskAndComeBack) {
  std::map<std::pair<NodeId, bool>, int> ordered = orders();
  EXPECT_NEAR((ordered[{kGpu, true}]), 201, 8);
  EXPECT_NEAR((ordered[{kHost, true}]), 112, 20) << "from the disk, with some room for what is on its way";
  EXPECT_GE((ordered[{kHost, false}]), (ordered[{kHost, true}]));
  int64_t told = 0;
  for (const Moved& moved : tracker_.planner.moved()) told += moved.arriving.count();
  EXPECT_EQ(told, tracker_.planner.cost().arriving.count()) << "of the GPU alone";
}

TEST_F(Backed, OtherFreeSpaceAtTheHostIsAnotherPlan) {
  ASSERT_NEAR((orders()[{kHost, true}]), 112, 20);
  host_space_ = KiB(150);
  EXPECT_NEAR((orders()[{kHost, true}]), 66, 20);
  host_space_ = tracker_.planner.working_set().at(kHost);
  EXPECT_EQ((orders()[{kHost, true}]), 0) << "all that is away fits there";
  EXPECT_GT((orders()[{kGpu, true}]), 0);
  host_space_ = KiB(100);
  EXPECT_NEAR((orders()[{kHost, true}]), 112, 20);
}

TEST_F(Backed, TheWorkingSetAtTheHostIsTheMostThatIsAway) {
  EXPECT_EQ(tracker_.planner.working_set().at(kHost), WorkingSet::kUnknown);
  orders();
  EXPECT_TRUE(tracker_.planner.working_set().changed());
  EXPECT_FALSE(tracker_.planner.working_set().changed()) << "it has been told";
  EXPECT_EQ(tracker_.planner.working_set().at(kGpu), KiB(kBlocks));
  EXPECT_GE(tracker_.planner.working_set().at(kHost), KiB(kBlocks - 200));
  EXPECT_LE(tracker_.planner.working_set().at(kHost), KiB(kBlocks - 200 + 16));
}

TEST_F(Backed, AFetchWithoutSpaceAtOneNodeDelaysNoneToAnother) {
  for (int i = 0; i < 3; ++i) period([](const Order&) {});
  int at_gpu = 0;
  int at_host = 0;
  period([&](const Order& order) {
    if (!order.arrives) return;
    if (order.node == kGpu) ++at_gpu;
    if (order.node != kHost) return;
    ++at_host;
    tracker_.planner.postpone();
  });
  EXPECT_NEAR(at_gpu, 201, 8);
  EXPECT_GT(at_host, 100) << "it is ordered again, once an operator";
  EXPECT_LE(at_host, static_cast<int>(kBlocks));
}

TEST(Planner, WorkingSetIsItsRecentUsesOnceAFittingPeriodDoesNotReturn) {
  ProgramTracker it(KiB(100));
  std::vector<Name> weights;
  for (int i = 0; i < 400; ++i) weights.push_back(it.meet());
  const auto period = [&] {
    for (size_t i = 0; i < 40; ++i) it.op({read(weights[i])});
  };
  for (int i = 0; i < 20; ++i) period();
  ASSERT_EQ(it.planner.working_set().at(kGpu), KiB(40));
  it.planner.unplanned(kGpu, KiB(1));
  for (int i = 0; i < 60; ++i) period();
  EXPECT_EQ(it.planner.working_set().at(kGpu), KiB(40)) << "it repeats itself as before";
  std::mt19937 any(1);
  const auto go_on = [&] {
    for (int i = 0; i < 5000; ++i) it.op({read(weights[any() % 400])});
  };
  go_on();
  EXPECT_EQ(it.planner.working_set().at(kGpu), KiB(40)) << "nothing was evicted";
  it.planner.unplanned(kGpu, KiB(1));
  go_on();
  EXPECT_GT(it.planner.working_set().at(kGpu), KiB(380));
}

TEST(Planner, WorkingSetIsWhatIsAliveAtOnceNotAllThatAPeriodMakes) {
  ProgramTracker it(MiB(1));
  std::vector<Name> weights;
  for (int i = 0; i < 10; ++i) weights.push_back(it.meet());
  const auto period = [&] {
    for (size_t i = 0; i < 100; ++i) {
      const Name made = it.meet();
      it.op({read(weights[i % 10]), {made, KiB(4), true}});
      it.planner.forget(made);
    }
  };
  for (int i = 0; i < 6; ++i) period();
  EXPECT_EQ(it.planner.working_set().at(kGpu), KiB(14));
}

TEST(Planner, EstimatesTheWorkingSetOfAProgramWithoutPeriods) {
  ProgramTracker it([](NodeId node) { return node == kGpu ? KiB(30) : KiB(100); }, {}, NodeId{1});
  EXPECT_EQ(it.planner.working_set().at(kGpu), WorkingSet::kUnknown);
  std::vector<Name> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(it.meet());
  std::mt19937 any(1);
  const auto go_on = [&](int operators, unsigned int count) {
    for (int i = 0; i < operators; ++i) it.op({read(blocks[any() % count])});
  };
  go_on(1000, 20);
  EXPECT_TRUE(it.planner.working_set().changed());
  EXPECT_EQ(it.planner.working_set().at(kGpu), KiB(20));
  EXPECT_EQ(it.planner.working_set().at(NodeId{1}), Bytes(0));
  go_on(20'000, 20);
  EXPECT_FALSE(it.planner.working_set().changed());
  it.planner.unplanned(kGpu, KiB(1));
  go_on(5000, 500);
  EXPECT_GT(it.planner.working_set().at(kGpu), KiB(480));
  EXPECT_EQ(it.planner.working_set().at(NodeId{1}), it.planner.working_set().at(kGpu) - KiB(30))
      << "of the host, the rest";
}

TEST(Planner, MakesRoomForWhatItCouldNotSee) {
  ProgramTracker it(KiB(32));
  std::vector<Name> weights;
  for (int i = 0; i < 40; ++i) weights.push_back(it.meet());
  const auto period = [&](int64_t unplanned) {
    int orders = 0;
    for (int i = 0; i < 7; ++i) {  // The planner schedules several short periods together.
      for (const Name weight : weights) {
        orders += it.op({read(weight)});
        it.planner.unplanned(kGpu, Bytes(unplanned));
      }
    }
    return orders;
  };
  for (int i = 0; i < 4; ++i) period(0);
  const int before = period(0);
  period(512);
  EXPECT_GT(period(0), before) << "a kernel's scratch memory is room that blocks do not have";
}

// Runs `count` periods that read the blocks of `kib` KiB in order; returns the number of orders.
int go_period(ProgramTracker& it, const std::vector<Name>& blocks, int count, int64_t kib) {
  int orders = 0;
  for (int period = 0; period < count; ++period)
    for (const Name block : blocks) orders += it.op({read(block, kib)});
  return orders;
}

TEST(Planner, OtherFreeSpaceIsAnotherSchedule) {
  Bytes space = KiB(6);
  ProgramTracker it([&space](NodeId) { return space; });
  std::vector<Name> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(it.meet());
  const auto periods = [&](int count) { return go_period(it, blocks, count, 65); };
  space = KiB(65 * 90);
  periods(5);
  EXPECT_GT(periods(3), 0);
  EXPECT_EQ(it.planner.cost().bound, KiB(65 * 10));
  EXPECT_EQ(it.planner.cost().shortage, KiB(65 * 10));
  space = KiB(65 * 100);
  periods(6);
  EXPECT_EQ(periods(6), 0) << "all of it fits";
  EXPECT_EQ(it.planner.cost().bound, Bytes(0));
  EXPECT_EQ(it.planner.cost().shortage, Bytes(0));
  space = KiB(65 * 50);
  periods(12);
  EXPECT_GT(periods(3), 0);
  it.planner.interrupt();
  EXPECT_FALSE(it.planner.follows());
  EXPECT_GT(periods(6), 0) << "it is taken up again";
}

TEST(Planner, FreeSpaceThatWentUpAndDownIsLookedAtAgainOnceItIsSteady) {
  Bytes space = KiB(400);
  ProgramTracker it([&space](NodeId) { return space; });
  std::vector<Name> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(it.meet());
  const auto periods = [&](int count) { return go_period(it, blocks, count, 1); };
  for (int i = 0; i < 60; ++i) {
    space = KiB(i % 2 == 0 ? 300 : 400);
    periods(1);
  }
  space = KiB(500);
  periods(20);
  EXPECT_EQ(periods(2), 0) << "all of it fits, and that was seen";
  periods(40);
  space = KiB(300);
  periods(4);
  const int orders = periods(1);
  EXPECT_GT(orders, 0);
  space = KiB(400);
  periods(4);
  EXPECT_LT(periods(1), orders * 3 / 4) << "soon, now";
}

}  // namespace
}  // namespace innkeeper::plan
