// The simulated time of a period by which the planner chooses between schedules, checked by hand.
#include "plan/period_time.h"

#include <gtest/gtest.h>

#include <array>

#include "plan/gaps.h"
#include "plan/history.h"

namespace innkeeper::plan {
namespace {

constexpr int64_t kMoved = 1 << 20;
constexpr int64_t kKernel = 1000;
constexpr double kCopy = 2 * (kMoved + kLatency);

// Four operators; the first one's block is away until its next use.
struct OneBlock {
  explicit OneBlock(bool written) {
    uses.speed = {.memory = 2, .link = 1};
    uses.length = 4;
    uses.blocks.push_back({.slot = {1, true}, .size = kMoved});
    uses.gaps.push_back({.block = 0, .begin = 1, .end = 4, .returns = true, .fresh = written, .version = 0});
    uses.written.push_back(written);
    for (int64_t step = 0; step <= uses.length; ++step) uses.touched.push_back(step * kKernel);
  }
  double time() const { return period_time(uses, trips, spare); }

  Uses uses;
  std::vector<PlannedTrip> trips{{.after = 0, .arrives = false, .gap = 0},
                                 {.after = 1, .arrives = true, .gap = 0}};
  std::vector<int64_t> spare{0, kMoved, 0, 0};
};

TEST(PeriodTime, OfAPeriodThatMovesNothingIsItsKernels) {
  OneBlock period(true);
  period.trips.clear();
  EXPECT_DOUBLE_EQ(period.time(), 4 * kKernel);
}

TEST(PeriodTime, WaitsForTheMemoryThatACopyOutFreesAndForTheCopyIn) {
  EXPECT_DOUBLE_EQ(OneBlock(true).time(), kKernel + 2 * kCopy);
}

TEST(PeriodTime, OfACleanBlockHasNoCopyOut) { EXPECT_DOUBLE_EQ(OneBlock(false).time(), 2 * kKernel + kCopy); }

TEST(PeriodTime, CopiesBothWaysAtOnceWhereThereIsSpace) {
  OneBlock period(true);
  period.spare.assign(4, kMoved);
  EXPECT_DOUBLE_EQ(period.time(), 2 * kKernel + kCopy);
}

TEST(PeriodTime, HidesCopiesBehindLongKernels) {
  OneBlock period(true);
  for (int64_t& bytes : period.uses.touched) bytes *= 100'000;
  EXPECT_DOUBLE_EQ(period.time(), 4e5 * kKernel);
}

// The bytes are on the host since the first departure: the second departure takes no time.
TEST(PeriodTime, OfOneVersionThereIsOneCopyOut) {
  OneBlock period(true);
  period.uses.gaps[0].end = 2;
  period.uses.gaps.push_back(
      {.block = 0, .begin = 3, .end = 4, .returns = true, .fresh = true, .version = 0});
  period.trips = {{.after = 0, .arrives = false, .gap = 0},
                  {.after = 0, .arrives = true, .gap = 0},
                  {.after = 2, .arrives = false, .gap = 1},
                  {.after = 2, .arrives = true, .gap = 1}};
  period.spare.assign(4, 0);
  const double once = period.time();
  period.uses.gaps[1].version = 1;  // The block is written in between.
  period.uses.written.push_back(true);
  EXPECT_GT(period.time(), once + 0.9 * kCopy);
}

// One block is written, read and written again; another is only read.
TEST(Gaps, OfOneVersionHaveTheSameBytes) {
  History history;
  const Name block = history.name();
  const Name frozen = history.name();
  const Name other = history.name();
  const auto op = [&](Name name, bool write) {
    history.ended(NodeId{1}, std::array{Touch{name, Bytes(kMoved), write}});
  };
  for (int period = 0; period < 3; ++period) {
    op(block, false);  // Reads the version that the period before wrote last.
    op(other, false);
    op(block, true);
    op(frozen, false);
    op(block, false);
    op(frozen, false);
  }
  const Uses uses = uses_at(make_program(history, 6).value(), NodeId{1});
  ASSERT_EQ(uses.blocks.size(), 3u);
  std::vector<Gap> gaps;
  for (const Gap& gap : uses.gaps) {
    if (uses.blocks[gap.block].slot.number == block) gaps.push_back(gap);
    if (uses.blocks[gap.block].slot.number == frozen) {
      EXPECT_FALSE(uses.written[gap.version]);
      EXPECT_FALSE(gap.fresh);
    }
  }
  ASSERT_EQ(gaps.size(), 3u) << "behind each of its uses";
  EXPECT_EQ(gaps[0].begin, 3) << "from the write on";
  EXPECT_TRUE(gaps[0].fresh && !gaps[1].fresh && !gaps[2].fresh);
  for (const Gap& gap : gaps) EXPECT_EQ(gap.version, gaps[0].version);
  EXPECT_TRUE(uses.written[gaps[0].version]);
}

}  // namespace
}  // namespace innkeeper::plan
