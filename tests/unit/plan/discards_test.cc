// The planner asks to record exactly those operators whose results its plan discards.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "plan/planner.h"
#include "support/touches.h"

namespace innkeeper::plan {
namespace {

constexpr size_t kDepth = 40;  // layers

// Forward and backward passes whose results are pure.
class TrainingLoop {
 public:
  TrainingLoop() {
    for (size_t i = 0; i < kDepth; ++i) weights_.push_back(meet());
  }

  // Counts the operators that the planner asks to record, and the discarded results.
  void period() {
    wanted_ = 0;
    std::vector<Name> made;
    for (size_t i = 0; i < kDepth; ++i) {
      std::vector<Touch> touches{{weights_[i], KiB(16)}};
      if (i > 0) touches.push_back({made.back(), MiB(1)});
      const bool wanted = planner_.may_discard_next();
      made.push_back(meet());
      if (wanted) kept_.insert(made.back());
      touches.push_back({.block = made.back(), .size = MiB(1), .write = true, .pure = true});
      op(touches);
      wanted_ += wanted ? 1 : 0;
    }
    for (size_t i = kDepth; i-- > 0;) {
      wanted_ += planner_.may_discard_next() ? 1 : 0;
      op({{weights_[i], KiB(16), true}, {made[i], MiB(1)}});
      planner_.forget(made[i]);
    }
  }

  int wanted() const { return wanted_; }  // Number of operators in the last period.
  int discarded() const { return discarded_; }
  int discarded_unkept() const { return unkept_; }
  Planner& planner() { return planner_; }

 private:
  // A name and its address are the same number.
  Name meet() {
    ++last_;
    EXPECT_EQ(planner_.meet(reinterpret_cast<Block*>(64 * last_)), static_cast<Name>(last_));
    return static_cast<Name>(last_);
  }
  void op(const std::vector<Touch>& touches) {
    planner_.ended(kGpu, touches, {.kernels = 1e-6, .clock = clock_ += 1e-3});
    for (Order order; planner_.next(order);) {
      if (!order.discards) continue;
      ++discarded_;
      const auto name = static_cast<Name>(reinterpret_cast<uintptr_t>(order.block) / 64);
      unkept_ += kept_.contains(name) ? 0 : 1;
    }
  }

  Planner planner_{[](NodeId) { return MiB(20); },
                   [](NodeId) {
                     return AboutNode{.name = "a GPU", .speed = {1e12, 1e9}, .may_discard = true};
                   }};
  uintptr_t last_ = 0;
  std::vector<Name> weights_;
  std::set<Name> kept_;
  double clock_ = 0;
  int wanted_ = 0, discarded_ = 0, unkept_ = 0;
};

TEST(Discards, AreExpectedOnlyAfterTheOperatorsThatMakeThem) {
  TrainingLoop training;
  training.period();
  EXPECT_EQ(training.wanted(), 2 * static_cast<int>(kDepth)) << "while nothing is known, of all";
  for (int i = 0; i < 8; ++i) training.period();
  ASSERT_TRUE(training.planner().follows());
  const int before = training.discarded();
  training.period();
  const int discarded = training.discarded() - before;
  EXPECT_GT(discarded, 4);
  EXPECT_EQ(training.wanted(), discarded);
  EXPECT_EQ(training.discarded_unkept(), 0) << "every discarded block can be recomputed";
}

TEST(Discards, AreExpectedAfterAllOperatorsOnceThePlanIsLeft) {
  TrainingLoop training;
  for (int i = 0; i < 8; ++i) training.period();
  training.planner().interrupt();
  EXPECT_TRUE(training.planner().may_discard_next());
}

}  // namespace
}  // namespace innkeeper::plan
