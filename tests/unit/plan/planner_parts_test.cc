// The parts of a planner, each by itself.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plan/free_space_estimate.h"
#include "plan/known_program.h"
#include "plan/named_blocks.h"
#include "plan/period.h"
#include "plan/plan_maker.h"
#include "plan/program_catalog.h"
#include "plan/schedule_trial.h"
#include "plan/tracker.h"
#include "support/touches.h"

namespace innkeeper::plan {
namespace {

constexpr NodeId kBackingHost{1};

// A loop that reads weights of 1 KiB in turn.
class WeightLoop {
 public:
  explicit WeightLoop(int64_t length) {
    for (int64_t i = 0; i < length; ++i) weights_.push_back(history_.name());
  }
  void step() {
    history_.ended(kGpu, std::array{read(weights_[next_])});
    next_ = (next_ + 1) % weights_.size();
  }
  void period() {
    for (size_t i = 0; i < weights_.size(); ++i) step();
  }
  int64_t length() const { return static_cast<int64_t>(weights_.size()); }
  // The period of the loop. Requires: two periods were done.
  Program program() const { return *make_program(history_, length()); }
  Name weight(size_t index) const { return weights_[index]; }
  History& history() { return history_; }

 private:
  History history_;
  std::vector<Name> weights_;
  size_t next_ = 0;
};

Program loop_program(int64_t length) {
  WeightLoop loop(length);
  loop.period();
  loop.period();
  return loop.program();
}

PlannedMove planned_fetch(int64_t after, Name name, NodeId node = kGpu) {
  return {.after = after, .arrives = true, .node = node, .slot = {name, true}, .size = KiB(1)};
}
PlannedMove planned_eviction(int64_t after, Name name) {
  return {.after = after, .node = kGpu, .slot = {name, true}, .size = KiB(1), .written = true};
}
PeriodPlan plan_with(std::vector<PlannedMove> moves, int64_t length) {
  PeriodPlan plan;
  plan.moves = std::move(moves);
  plan.cost.operators = length;
  return plan;
}

TEST(NamedBlocks, FindsRecentAndLongLivedOnes) {
  constexpr Name kCount = 200'000;
  const auto block = [](Name name) { return reinterpret_cast<Block*>(static_cast<uintptr_t>(name) * 64); };
  NamedBlocks blocks;
  for (Name name = 1; name <= kCount; ++name) {
    blocks.add(name, block(name));
    if (name > 1 && name % 1000 != 0) blocks.remove(name);
  }
  EXPECT_EQ(blocks.find(1), block(1)) << "it has outlived its place among recent names";
  EXPECT_EQ(blocks.find(kCount), block(kCount));
  EXPECT_EQ(blocks.find(kCount - 1), nullptr);
  EXPECT_EQ(blocks.find(0), nullptr) << "a block of an earlier period may have a name below 1";
  EXPECT_EQ(blocks.find(-5), nullptr);
  blocks.remove(1);
  blocks.remove(kCount);
  EXPECT_EQ(blocks.find(1), nullptr);
  EXPECT_EQ(blocks.find(kCount), nullptr);
  EXPECT_EQ(blocks.find(1000), block(1000));
}

TEST(FreeSpaceEstimate, LearnsAShortageUntilItDoesNotHelp) {
  const std::vector<PlannedMove> moves{planned_eviction(0, 1)};
  FreeSpaceEstimate estimate;
  estimate.start_schedule();
  EXPECT_EQ(estimate.usable(kGpu, KiB(160)), KiB(160));
  estimate.start_period();
  EXPECT_FALSE(estimate.learn_shortage(moves)) << "nothing was evicted";
  estimate.evicted(kGpu, KiB(40));
  EXPECT_FALSE(estimate.learn_shortage({})) << "there is no schedule that could leave space unused";
  EXPECT_TRUE(estimate.learn_shortage(moves));
  EXPECT_EQ(estimate.usable(kGpu, KiB(160)), KiB(150)) << "at most 1/16 more";
  estimate.start_period();
  estimate.evicted(kGpu, KiB(4));
  EXPECT_TRUE(estimate.learn_shortage(moves));
  EXPECT_EQ(estimate.usable(kGpu, KiB(160)), KiB(146));
  estimate.start_period();
  estimate.evicted(kGpu, KiB(5));
  EXPECT_TRUE(estimate.learn_shortage(moves)) << "back to the shortage with which the least was evicted";
  EXPECT_EQ(estimate.usable(kGpu, KiB(160)), KiB(150));
  EXPECT_FALSE(estimate.learn_shortage(moves)) << "for good";
}

TEST(FreeSpaceEstimate, NoticesAChangeEverMoreRarely) {
  Bytes free = KiB(160);
  const EngineView engine([&free](NodeId) { return free; }, {});
  const Program program = loop_program(20);
  FreeSpaceEstimate estimate;
  estimate.start_schedule();
  const auto replan = [&] { (void)estimate.usable(kGpu, free); };
  replan();
  free = KiB(155);
  EXPECT_FALSE(estimate.has_changed(program, engine, 0)) << "less than 1/16";
  for (int64_t period = 0, wait = 1; wait <= 16; period += wait, wait *= 2) {
    free += KiB(100);
    EXPECT_TRUE(estimate.has_changed(program, engine, period)) << period;
    replan();
    free += KiB(50);
    EXPECT_FALSE(estimate.has_changed(program, engine, period + wait - 1)) << period;
  }
  estimate.reset();
  EXPECT_TRUE(estimate.has_changed(program, engine, 0));
}

TEST(FreeSpaceEstimate, NoticesAChangeAtTheBackingNode) {
  std::array<Bytes, 2> free{KiB(160), KiB(160)};
  const EngineView engine([&free](NodeId node) { return free[index_of(node)]; }, {});
  const Program program = loop_program(20);
  FreeSpaceEstimate estimate;
  estimate.start_schedule();
  (void)estimate.usable(kGpu, free[0]);
  free[1] = KiB(80);
  EXPECT_FALSE(estimate.has_changed(program, engine, 0)) << "the schedule does not use the host";
  estimate.set_backing(kBackingHost, KiB(160));
  EXPECT_TRUE(estimate.has_changed(program, engine, 0));
}

TEST(KnownProgram, PlansSeveralShortPeriodsAsOne) {
  const KnownProgram known(loop_program(40));
  EXPECT_EQ(known.cost().operators, 40);
  EXPECT_EQ(known.cost().times, 7);
  EXPECT_EQ(known.program().length(), 7 * 40);
  EXPECT_EQ(known.touched(kGpu), KiB(40));
  EXPECT_EQ(known.working_set()[index_of(kGpu)], KiB(40));
  EXPECT_EQ(KnownProgram(loop_program(256)).program().length(), 256);
}

TEST(KnownProgram, TakesAPlanOfTheBackgroundOnce) {
  std::vector<std::function<void()>> jobs;
  auto known = std::make_unique<KnownProgram>(loop_program(300));
  const auto start = [&] {
    known->start_plan([&jobs](std::function<void()> job) { jobs.push_back(std::move(job)); },
                      [] { return plan_with({planned_fetch(3, 1)}, 300); });
  };
  start();
  EXPECT_TRUE(known->is_being_planned());
  EXPECT_FALSE(known->take_finished_plan().has_value());
  jobs[0]();
  EXPECT_FALSE(known->is_planned());
  std::optional<PeriodPlan> plan = known->take_finished_plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_FALSE(known->is_being_planned());
  EXPECT_FALSE(known->take_finished_plan().has_value());
  known->adopt(std::move(*plan));
  EXPECT_TRUE(known->is_planned());
  EXPECT_EQ(known->moves().size(), 1u);
  EXPECT_FALSE(known->makes_discarded(3));

  start();
  known->cancel_plan();
  jobs[1]();
  EXPECT_FALSE(known->take_finished_plan().has_value());
  start();
  known.reset();
  jobs[2]();  // The job shares only the plan with the program.
}

TEST(ProgramCatalog, FindsWhatIsIndexedByItsLastOperators) {
  WeightLoop loop(300);
  loop.period();
  loop.period();
  ProgramCatalog catalog;
  KnownProgram& known = catalog.add(loop.program());
  EXPECT_FALSE(catalog.find(loop.history()).has_value());
  catalog.index(known);
  const auto end = catalog.find(loop.history());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->known, &known);
  EXPECT_EQ(end->step, 0) << "the next period begins";

  const Name other = loop.history().name();
  loop.history().ended(kGpu, std::array{read(other)});
  EXPECT_FALSE(catalog.find(loop.history()).has_value());
  for (int i = 0; i < 7; ++i) loop.step();
  EXPECT_FALSE(catalog.find(loop.history()).has_value()) << "eight operators have to agree";
  loop.step();
  ASSERT_TRUE(catalog.find(loop.history()).has_value());
  EXPECT_EQ(catalog.find(loop.history())->step, 8);
  catalog.remove(known);
  EXPECT_FALSE(catalog.find(loop.history()).has_value());
}

TEST(ProgramCatalog, KeepsEightPrograms) {
  ProgramCatalog catalog;
  const KnownProgram& first = catalog.add(loop_program(300));
  for (int i = 0; i < 7; ++i) catalog.add(loop_program(300));
  EXPECT_EQ(catalog.surplus(), nullptr);
  catalog.add(loop_program(300));
  EXPECT_EQ(catalog.surplus(), &first);
  catalog.remove(first);
  EXPECT_EQ(catalog.surplus(), nullptr);
  int left = 0;
  catalog.each([&left](KnownProgram&) { ++left; });
  EXPECT_EQ(left, 8);
}

class TrackerTest : public ::testing::Test {
 protected:
  TrackerTest() {
    loop_.period();
    loop_.period();
    known_ = std::make_unique<KnownProgram>(loop_.program());
    known_->adopt(
        plan_with({planned_eviction(0, loop_.weight(0)), planned_fetch(0, loop_.weight(5)),
                   planned_fetch(0, loop_.weight(6)), planned_fetch(0, loop_.weight(7), kBackingHost),
                   planned_eviction(2, loop_.weight(2))},
                  kLength));
    tracker_.follow({known_.get(), 0, loop_.history().births()});
  }
  // Does the next operator. Returns whether the period ends with it.
  bool step(bool issue = true) {
    const size_t at = static_cast<size_t>(tracker_.position().step);
    loop_.step();
    tracker_.used(std::array{read(loop_.weight(at))});
    EXPECT_TRUE(tracker_.is_expected(loop_.history()));
    return tracker_.advance(issue);
  }
  // Index of the next moved weight; -1: no move is due.
  int64_t next() {
    PendingMove move;
    return tracker_.next(move) ? move.name - loop_.weight(0) : -1;
  }

  static constexpr int64_t kLength = 300;
  WeightLoop loop_{kLength};
  std::unique_ptr<KnownProgram> known_;
  Tracker tracker_;
};

TEST_F(TrackerTest, GivesEvictionsFirstAndFetchesInTheOrderOfTheirUses) {
  EXPECT_EQ(next(), -1);
  EXPECT_FALSE(step());
  for (const int64_t expected : {0, 5, 6, 7, -1}) EXPECT_EQ(next(), expected);
  step();
  EXPECT_EQ(next(), -1);
  step();
  EXPECT_EQ(next(), 2);
}

TEST_F(TrackerTest, AFetchWithoutFreeSpaceHoldsUpThoseOfItsNode) {
  step();
  EXPECT_EQ(next(), 0);
  EXPECT_EQ(next(), 5);
  tracker_.postpone();
  EXPECT_EQ(next(), 7) << "at another node";
  EXPECT_EQ(next(), -1);
  step();
  EXPECT_EQ(next(), 5) << "again after the next operator";
  tracker_.postpone();
  tracker_.used(std::array{read(loop_.weight(5))});
  EXPECT_EQ(next(), 6) << "the operator that used 5 has fetched it";
}

TEST_F(TrackerTest, NothingIsDueOnceTheProgramHasLeft) {
  step();
  EXPECT_FALSE(tracker_.take_has_left());
  loop_.history().ended(kGpu, std::array{read(loop_.weight(9))});
  EXPECT_FALSE(tracker_.is_expected(loop_.history()));
  tracker_.leave();
  EXPECT_EQ(tracker_.followed(), nullptr);
  EXPECT_EQ(next(), -1);
  EXPECT_TRUE(tracker_.take_has_left());
  EXPECT_FALSE(tracker_.take_has_left());
}

TEST_F(TrackerTest, OnlyPeriodsThatArePlannedThroughoutAreWhole) {
  const auto period = [this] {
    while (!step()) {
    }
  };
  EXPECT_TRUE(tracker_.is_whole());
  EXPECT_FALSE(tracker_.is_steady());
  period();
  tracker_.start_next_period(false);
  EXPECT_TRUE(tracker_.is_whole());
  EXPECT_TRUE(tracker_.is_steady());
  period();
  tracker_.start_next_period(true);
  EXPECT_TRUE(tracker_.is_whole());
  EXPECT_FALSE(tracker_.is_steady()) << "the plan is another one";
  step();
  tracker_.break_period();
  EXPECT_FALSE(tracker_.is_whole());
  EXPECT_EQ(next(), -1);
  step(false);
  step(false);
  EXPECT_EQ(next(), -1) << "moves of suspended schedules are left out";
  const PlanPosition middle = tracker_.position();
  tracker_.follow(middle);
  EXPECT_FALSE(tracker_.is_whole()) << "it begins in the middle of a period";
}

TEST(PeriodSearch, PausesTwiceAsLongEachTime) {
  WeightLoop loop(300);
  PeriodSearch search;
  const auto operators_until_found = [&] {
    int64_t count = 0;
    do {
      loop.step();
      ++count;
    } while (search.look(loop.history()) == 0);
    return count;
  };
  EXPECT_EQ(operators_until_found(), 600);
  for (const int64_t pause : {300, 600, 1200}) {
    search.refuse(loop.history(), 300);
    EXPECT_EQ(operators_until_found(), pause);
  }
  search.refuse(loop.history(), 300);
  search.evicted_without_a_period(loop.history());
  EXPECT_EQ(operators_until_found(), 300) << "a period that fitted may not fit any more";
}

TEST(PlanMaker, PlansLongPeriodsInTheBackground) {
  std::vector<std::function<void()>> jobs;
  Bytes free = GiB(1);
  const EngineView engine([&free](NodeId) { return free; }, {});
  const PlanMaker maker(engine, [&jobs](std::function<void()> job) { jobs.push_back(std::move(job)); });
  KnownProgram small(loop_program(300));
  KnownProgram large(loop_program(3000));
  ASSERT_TRUE(maker.make(large).has_value()) << "a period that fits is looked at at once";
  free = KiB(200);
  const auto plan = maker.make(small);
  ASSERT_TRUE(plan.has_value());
  EXPECT_FALSE(plan->moves.empty());
  EXPECT_FALSE(maker.make(large).has_value());
  EXPECT_TRUE(large.is_being_planned());
  ASSERT_EQ(jobs.size(), 1u);
  jobs[0]();
  EXPECT_FALSE(large.take_finished_plan()->moves.empty());
  EXPECT_TRUE(PlanMaker(engine, {}).make(large).has_value()) << "without another thread, at once";
}

TEST(ScheduleTrial, SuspendsASchedulesThatFetchesMoreThanMovementOnDemand) {
  const EngineView engine([](NodeId) { return MiB(64); }, {});
  ScheduleTrial trial(engine);
  WeightLoop loop(300);
  Bytes arrived{0};
  bool changed = false;
  for (int64_t i = 0; i < 300 * 40 && !changed; ++i) {
    if (i == 600) trial.start(300);
    if (i >= 600) arrived += MiB(1);  // All blocks fit: on demand nothing would arrive.
    loop.step();
    changed =
        trial.ended(i + 1, kGpu, std::array{read(loop.weight(static_cast<size_t>(i % 300)))}, {}, arrived);
  }
  EXPECT_TRUE(changed);
  EXPECT_TRUE(trial.suspended());
}

}  // namespace
}  // namespace innkeeper::plan
