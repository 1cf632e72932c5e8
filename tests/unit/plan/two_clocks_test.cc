// Periods whose host is slower than their node.
#include "plan/two_clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "plan/gaps.h"
#include "plan/history.h"
#include "plan/period_time.h"
#include "plan/program.h"
#include "plan/schedule.h"
#include "support/touches.h"

namespace innkeeper::plan {
namespace {

TEST(TwoClocks, AKernelStartsWhenItIsLaunchedAndTheNodeIsReady) {
  const std::array host = {10.0, 10.0, 10.0};
  TwoClocks clocks(host);
  EXPECT_DOUBLE_EQ(clocks.start(0, 0), 10) << "the host is behind";
  EXPECT_DOUBLE_EQ(clocks.start(1, 11), 20);
  EXPECT_DOUBLE_EQ(clocks.start(2, 50), 50) << "the host is ahead";
}

// A loop of operators with different numbers of operands; the host takes a given time for each.
class PacedLoop {
 public:
  // `kernels`: seconds of each operator's kernels; `host`: seconds of the host for each operator in this
  // period.
  void period(double kernels, const std::array<double, 3>& host) {
    for (size_t i = 0; i < host.size(); ++i) {
      std::vector<Touch> touches;
      for (size_t j = 0; j <= i; ++j) touches.push_back({blocks_[j], KiB(4), true});
      history_.ended(kGpu, touches, kernels, host[i]);
    }
  }
  Program program() const { return make_program(history_, 3).value(); }

 private:
  History history_;
  std::array<Name, 3> blocks_{history_.name(), history_.name(), history_.name()};
};

constexpr double kMemory = 1e9;  // Bytes per second.
constexpr Speed kSpeed{.memory = kMemory, .link = 1e9};

TEST(TwoClocks, TheHostsPaceIsTheLeastThatItTookForSuchAnOperator) {
  PacedLoop loop;
  loop.period(1e-3, {5, 5, 5});
  loop.period(1e-3, {1, 9, 3});
  loop.period(1e-3, {2, 4, 7});
  const Program program = loop.program();
  EXPECT_EQ(program.steps[0].host, 1);
  EXPECT_EQ(program.steps[1].host, 4);
  EXPECT_EQ(program.steps[2].host, 3);
  EXPECT_EQ(repeated(program, 2).steps[4].host, 4);
}

// A step that took far longer than in other periods includes a wait; more operands explain a part of the
// time.
TEST(TwoClocks, AWaitIsNoPace) {
  PacedLoop loop;
  for (int i = 0; i < 3; ++i) loop.period(1e-3, {2, 2, 1000});
  const Program program = loop.program();
  EXPECT_EQ(program.steps[1].host, 2);
  EXPECT_EQ(program.steps[2].host, 8);
}

TEST(TwoClocks, StepsTakeAsLongAsTheSlowerOfBoth) {
  for (const double host : {0.0, 1e-4, 1e-3, 4e-3}) {
    PacedLoop loop;
    for (int i = 0; i < 3; ++i) loop.period(1e-3, {host, host, host});
    const Uses uses = uses_at(loop.program(), kGpu, kSpeed);
    EXPECT_EQ(uses.host.empty(), host == 0);
    EXPECT_NEAR(period_time(uses, {}, std::vector<int64_t>(3, 0)), 3 * std::max(1e-3, host) * kMemory, 3)
        << host;
    EXPECT_NEAR(static_cast<double>(uses.touched.back()), 3e-3 * kMemory, 3) << "kernels alone";
  }
}

// A schedule without moves takes as long as the host does.
TEST(TwoClocks, APeriodThatFitsTakesTheHostsTime) {
  PacedLoop loop;
  for (int i = 0; i < 3; ++i) loop.period(1e-3, {4e-3, 4e-3, 4e-3});
  const Schedule none = make_schedule(uses_at(loop.program(), kGpu, kSpeed), MiB(1));
  EXPECT_TRUE(none.moves.empty());
  EXPECT_NEAR(none.time, 12e-3 * kMemory, 3);
}

// Where the host has launched ahead, a step that is slow on the host costs nothing.
TEST(TwoClocks, TheHostRunsAhead) {
  PacedLoop loop;
  for (int i = 0; i < 3; ++i) loop.period(1e-3, {1e-3, 1e-4, 1.8e-3});
  const Uses uses = uses_at(loop.program(), kGpu, kSpeed);
  EXPECT_NEAR(period_time(uses, {}, std::vector<int64_t>(3, 0)), 3e-3 * kMemory, 3);
}

}  // namespace
}  // namespace innkeeper::plan
