// Schedules that recompute blocks instead of copying them.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "plan/history.h"
#include "plan/period.h"
#include "plan/recompute.h"
#include "support/pager.h"
#include "support/touches.h"

namespace innkeeper::plan {
namespace {

using test::Pager;

struct Sizes {
  int64_t weight, wide, narrow;
};

// Each layer has two operators. One makes a wide result from a weight and the layer before; a pure one makes
// a narrow result from that. The backward pass reads both again.
class Training {
 public:
  // `seconds`: time of each operator's kernels; 0: unknown. `state`: KiB that the first operator of a period
  // reads and the last one of the period before made.
  explicit Training(std::vector<Sizes> layers, double seconds = 0, int64_t state = 0)
      : layers_(std::move(layers)), seconds_(seconds), state_size_(state) {
    for (size_t i = 0; i < layers_.size(); ++i) weights_.push_back(history_.name());
    for (int period = 0; period < 3; ++period) go_period();
  }

  Program program() const { return make_program(history_, found_).value(); }
  int64_t births() const { return history_.births(); }

 private:
  Touch weight(size_t i, bool write = false) const { return {weights_[i], KiB(layers_[i].weight), write}; }

  void op(const std::vector<Touch>& touches) {
    history_.ended(kGpu, touches, seconds_);
    found_ = finder_.look(history_);
  }

  void go_period() {
    std::vector<Touch> wide, narrow, gradients;
    const Touch before = state_;
    if (before.block != Name{}) op({weight(0), before});
    for (size_t i = 0; i < layers_.size(); ++i) {
      wide.push_back({history_.name(), KiB(layers_[i].wide)});
      std::vector<Touch> touches{weight(i), wide.back()};
      if (i > 0) touches.push_back(narrow.back());
      op(touches);
      narrow.push_back({history_.name(), KiB(layers_[i].narrow)});
      Touch made = narrow.back();
      made.pure = true;
      op({wide.back(), made});
    }
    for (size_t i = layers_.size(); i-- > 0;) {
      gradients.push_back({history_.name(), KiB(layers_[i].weight)});
      op({narrow[i], weight(i), gradients.back()});
      history_.died(narrow[i].block);
      op({wide[i], gradients.back()});
      history_.died(wide[i].block);
    }
    for (size_t i = layers_.size(); i-- > 0;) {
      const Touch& gradient = gradients[layers_.size() - 1 - i];
      op({weight(i, true), gradient});
      history_.died(gradient.block);
    }
    if (state_size_ == 0) return;
    state_ = {history_.name(), KiB(state_size_)};
    if (before.block == Name{}) return op({weight(0), state_});
    op({before, state_});
    history_.died(before.block);
  }

  const std::vector<Sizes> layers_;
  const double seconds_;
  const int64_t state_size_;
  Touch state_;
  History history_;
  PeriodFinder finder_;
  int64_t found_ = 0;
  std::vector<Name> weights_;
};

std::vector<Sizes> by_chance(uint32_t seed, size_t layers) {
  std::mt19937 chance(seed);
  const auto upto = [&chance](uint32_t most) { return static_cast<int64_t>(1 + chance() % most); };
  std::vector<Sizes> sizes(layers);
  for (Sizes& each : sizes) each = {upto(2000), upto(3000), upto(3000)};
  return sizes;
}

int64_t most_alive(const Program& program) {
  const Uses uses = uses_at(program, kGpu);
  return *std::max_element(uses.alive.begin(), uses.alive.end());
}

int64_t discarded(const Schedule& schedule) {
  return std::count_if(schedule.moves.begin(), schedule.moves.end(),
                       [](const PlannedMove& move) { return move.discards; });
}

TEST(Recomputed, IsWhatAPureOperatorMadeOfWhatIsStillThere) {
  const Program program = Training(std::vector<Sizes>(16, {100, 200, 300})).program();
  const std::vector<RecomputedBlock> all = may_be_recomputed(program, kGpu);
  EXPECT_EQ(all.size(), 15u) << "the last one is used at once";
  for (const RecomputedBlock& each : all) {
    EXPECT_EQ(each.size, KiB(300));
    EXPECT_EQ(each.use, 2 * 16 + 2 * (16 - each.after / 2)) << "behind the next layer's " << each.after;
  }
  EXPECT_TRUE(may_be_recomputed(program, NodeId{1}).empty());
}

TEST(Recomputed, IsAnotherBlockToTheProgram) {
  const Program program = Training(std::vector<Sizes>(16, {100, 200, 300})).program();
  const std::vector<RecomputedBlock> all = may_be_recomputed(program, kGpu);
  const Program made = with_recomputed(program, all);
  EXPECT_EQ(made.length(), program.length());
  EXPECT_EQ(made.births, program.births + 15);
  EXPECT_EQ(most_alive(program) - most_alive(made), KiB(300 * 15).count());
  EXPECT_EQ(most_alive(with_recomputed(program, {})), most_alive(program));
}

// Kernels take long, so that copies run concurrently with them: to recompute would cost time, although it
// would avoid all moves.
TEST(Recomputed, IsNotTakenWhereCopiesCostNothing) {
  constexpr plan::Speed kSpeed{.memory = 1e12, .link = 2e10};
  const Program program = Training(std::vector<Sizes>(16, {100, 200, 300}), 1e-3).program();
  ASSERT_TRUE(program.is_timed());
  const Uses uses = uses_at(program, kGpu, kSpeed);
  const Bytes space(most_alive(program) * 9 / 10);
  const Schedule plain = make_schedule(uses, space);
  ASSERT_FALSE(plain.moves.empty());
  EXPECT_EQ(plain.time, static_cast<double>(uses.touched.back())) << "copies hide";
  const Program without = with_recomputed(program, may_be_recomputed(program, kGpu));
  const Schedule nothing = make_schedule(uses_at(without, kGpu, kSpeed), space);
  EXPECT_TRUE(nothing.moves.empty());
  EXPECT_GT(nothing.time, plain.time) << "a recompute takes its time";
  EXPECT_EQ(discarded(schedule_with_recompute(program, uses, space)), 0);
}

TEST(Recomputed, IsTakenWhereThatIsFasterThanCopies) {
  int faster = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    Training training(by_chance(seed, 24));
    const Program program = training.program();
    const int64_t alive = most_alive(program);
    for (const int64_t percent : {90, 70, 50}) {
      const Bytes space(alive * percent / 100);
      const Schedule plain = make_schedule(uses_at(program, kGpu), space);
      const Schedule made = schedule_with_recompute(program, uses_at(program, kGpu), space);
      EXPECT_LE(made.time, plain.time) << "seed " << seed << ", " << percent << " %";
      EXPECT_EQ(discarded(plain), 0);
      faster += discarded(made) > 0 && made.arriving < plain.arriving ? 1 : 0;
      Pager pager(program, space);
      int64_t births = training.births();
      for (int period = 0; period < 4; ++period, births += program.births) pager.period(made.moves, births);
      EXPECT_EQ(pager.demanded_, 0) << "seed " << seed << ", " << percent << " %";
      EXPECT_EQ(pager.evicted_, 0) << "seed " << seed << ", " << percent << " %";
      EXPECT_EQ(pager.recomputed_, 4 * discarded(made)) << "seed " << seed << ", " << percent << " %";
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(faster, 150) << "of 180";
}

// A block that lasts from one period into the next has another name in the program with second lives.
TEST(Recomputed, WhatMovesBesideItKeepsItsName) {
  int tried = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Training training(by_chance(seed, 24), 0, 4000);
    const Program program = training.program();
    const Bytes space(most_alive(program) / 2);
    const Schedule made = schedule_with_recompute(program, uses_at(program, kGpu), space);
    const auto is_of_the_period_before = [&](const PlannedMove& move) {
      return !move.slot.lasting && move.slot.number < 1;
    };
    if (discarded(made) == 0 || std::none_of(made.moves.begin(), made.moves.end(), is_of_the_period_before))
      continue;
    ++tried;
    for (const PlannedMove& move : made.moves)
      EXPECT_TRUE(move.slot.lasting || move.slot.number > -program.births) << move.slot.number;
    Pager pager(program, space);
    int64_t births = training.births();
    for (int period = 0; period < 4; ++period, births += program.births) pager.period(made.moves, births);
    EXPECT_EQ(pager.demanded_, 0) << "seed " << seed;
    EXPECT_EQ(pager.evicted_, 0) << "seed " << seed;
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(tried, 10);
}

TEST(Recomputed, NothingIsWhereAllFits) {
  const Program program = Training(std::vector<Sizes>(16, {100, 200, 300})).program();
  EXPECT_TRUE(
      schedule_with_recompute(program, uses_at(program, kGpu), Bytes(most_alive(program))).moves.empty());
}

// One pure result, used once later; `input` is the operand of its operator.
struct Small {
  explicit Small(int64_t input_dies, bool written = false, bool chained = false) {
    program.births = 4;
    const auto slot = [](int64_t number) { return Slot{number, false}; };
    const auto step = [&](std::vector<Program::Use> uses) {
      program.steps.push_back({0, program.uses.size(), 4, kGpu});
      program.uses.insert(program.uses.end(), uses.begin(), uses.end());
    };
    step({{slot(1), KiB(9), false}});                                            // Step 0: the input.
    step({{slot(1), KiB(9), false}, {slot(2), KiB(9), false, false, true}});     // Step 1: the result.
    step({{slot(2), KiB(9), false}, {slot(3), KiB(9), false, false, chained}});  // 2
    step({{slot(1), KiB(9), written}});                                          // 3
    step({{slot(4), KiB(9), false}});                                            // 4
    step({{slot(2), KiB(9), false}});                                            // 5
    step({{slot(3), KiB(9), false}});                                            // 6
    program.deaths = {{input_dies, slot(1)}, {5, slot(2)}, {6, slot(3)}, {6, slot(4)}};
  }
  Program program;
};

TEST(Recomputed, IsNothingWhoseInputDiesOrIsWritten) {
  EXPECT_EQ(may_be_recomputed(Small(5).program, kGpu).size(), 1u);
  EXPECT_EQ(may_be_recomputed(Small(6).program, kGpu).size(), 1u);
  EXPECT_TRUE(may_be_recomputed(Small(4).program, kGpu).empty());
  EXPECT_TRUE(may_be_recomputed(Small(3).program, kGpu).empty());
  EXPECT_TRUE(may_be_recomputed(Small(6, true).program, kGpu).empty());
}

TEST(Recomputed, IsNothingThatIsCopiedSooner) {
  Program program = Small(6).program;
  for (Program::Use& use : program.uses)
    if (use.slot.number == 2) use.size = Bytes(144);
  EXPECT_EQ(may_be_recomputed(program, kGpu).size(), 1u);
  EXPECT_TRUE(may_be_recomputed(program, kGpu, 30).empty())
      << "65 times as many bytes, at 2 x 30 of a copy's";
}

TEST(Recomputed, IsNotComputedFromRecomputedBlocks) {
  const auto all = may_be_recomputed(Small(6, false, true).program, kGpu);
  ASSERT_EQ(all.size(), 1u) << "the second is made of the first, which dies before besides";
  EXPECT_EQ(all[0].slot.number, 2);
  EXPECT_EQ(all[0].after, 2);
  EXPECT_EQ(all[0].use, 5);
}

// Each could be recomputed from the other: the planner takes the larger one, or the first.
TEST(Recomputed, OneOfAChainIs) {
  Program program = Small(6, false, true).program;
  for (Program::Death& death : program.deaths)
    if (death.slot.number == 2) death.after = 6;
  const auto first = may_be_recomputed(program, kGpu);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].slot.number, 2);
  for (Program::Use& use : program.uses)
    if (use.slot.number == 3) use.size = KiB(10);
  const auto larger = may_be_recomputed(program, kGpu);
  ASSERT_EQ(larger.size(), 1u);
  EXPECT_EQ(larger[0].slot.number, 3);
}

}  // namespace
}  // namespace innkeeper::plan
