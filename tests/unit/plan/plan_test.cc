// Plans without an engine: the detection of periods, and schedules that fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "plan/backing.h"
#include "plan/bound.h"
#include "plan/history.h"
#include "plan/period.h"
#include "plan/schedule.h"
#include "support/pager.h"
#include "support/touches.h"

namespace innkeeper::plan {
namespace {

using test::Pager;

constexpr NodeId kHost{1};

// The program's operators as an engine would report them to a history: with blocks that are born and die.
struct Loop {
  History history;
  PeriodFinder finder;
  int64_t found = 0;

  void op(std::vector<Touch> touches, double seconds = 0) {
    history.ended(kGpu, touches, seconds);
    found = finder.look(history);
  }
};

TEST(Period, IsFoundAfterTwoPeriods) {
  Loop loop;
  std::vector<Name> weights;
  for (int i = 0; i < 40; ++i) weights.push_back(loop.history.name());
  for (int period = 0; period < 3; ++period) {
    for (int i = 0; i < 40; ++i) {
      const Name fresh = loop.history.name();
      loop.op({read(weights[static_cast<size_t>(i)], 1 + i), {fresh, KiB(2), true}});
      const bool twice = period * 40 + i >= 79;
      EXPECT_EQ(loop.found, twice ? 40 : 0) << period << " " << i;
      loop.history.died(fresh);
    }
  }
}

TEST(Period, ThatIsShortMustLast) {
  Loop loop;
  const Name weight = loop.history.name();
  for (int i = 0; i < 40; ++i) {
    loop.op({read(weight), {loop.history.name(), KiB(2), true}});
    EXPECT_EQ(loop.found, i < 32 ? 0 : 1) << "a few results of one kind are no program";
  }
}

TEST(Period, IsNotALayerThatLooksLikeTheOneBefore) {
  Loop loop;
  std::vector<Name> weights;
  for (int i = 0; i < 64; ++i) weights.push_back(loop.history.name());
  for (const Name weight : weights) {
    for (int i = 0; i < 20; ++i) {
      loop.op({read(weight), {loop.history.name(), KiB(1), true}});
      // One weight read repeatedly is a period of one operator, and rightly so.
      EXPECT_TRUE(loop.found == 0 || loop.found == 1) << loop.found;
    }
  }
}

TEST(Period, IsNotWhatTouchesOtherBlocksEachTime) {
  Loop loop;
  const Name common = loop.history.name();
  std::vector<Name> rows;
  for (int i = 0; i < 64; ++i) rows.push_back(loop.history.name());
  for (const Name row : rows) {
    loop.op({read(common, 3)});
    EXPECT_EQ(loop.found, 0);
    loop.op({read(common, 5), read(row)});
    EXPECT_EQ(loop.found, 0);
  }
}

TEST(Period, OfTwoHundredThousandOperatorsCostsWhatItIs) {
  Loop loop;
  std::vector<Name> weights;
  for (int i = 0; i < 97; ++i) weights.push_back(loop.history.name());
  constexpr int kLength = 100'000;
  for (int period = 0; period < 2; ++period) {
    for (int i = 0; i < kLength; ++i) {
      const auto which = static_cast<size_t>(int64_t{i} * i % 97);
      loop.op({read(weights[which], static_cast<int64_t>(which)),
               {loop.history.name(), KiB(1 + (int64_t{i} * 2654435761 >> 7) % 1009), true}});
    }
  }
  EXPECT_EQ(loop.found, kLength);
}

TEST(Schedule, OfACircleFetchesOneBlockAPeriod) {
  Loop loop;
  std::vector<Name> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(loop.history.name());
  for (int period = 0; period < 5; ++period)
    for (const Name block : blocks) loop.op({read(block)});
  ASSERT_EQ(loop.found, 10);
  const Program program = make_program(loop.history, 10).value();
  EXPECT_EQ(program.touched_at(kGpu), KiB(10));
  const Schedule made = make_schedule(uses_at(program, kGpu), KiB(9));
  // The optimum: of ten blocks read in a fixed order nine stay, but the one being read must be present.
  EXPECT_LE(made.arriving, KiB(2));
  EXPECT_TRUE(make_schedule(uses_at(program, kGpu), KiB(10)).moves.empty()) << "what fits is never moved";
  EXPECT_EQ(live_excess(uses_at(program, kGpu), KiB(9)), KiB(1));
  EXPECT_EQ(live_excess(uses_at(program, kGpu), KiB(10)), Bytes(0));
  EXPECT_EQ(live_excess(uses_at(program, NodeId{5}), KiB(1)), Bytes(0)) << "it does nothing there";
}

// Training steps: weights, results that live until backward, gradients, random sizes.
Program random_training(uint32_t seed, int layers, Loop& loop) {
  std::mt19937 chance(seed);
  const auto kib = [&](int most) { return static_cast<int64_t>(1 + chance() % static_cast<uint32_t>(most)); };
  std::vector<std::pair<Name, int64_t>> weights;
  std::vector<int64_t> widths;
  for (int i = 0; i < layers; ++i) {
    weights.emplace_back(loop.history.name(), kib(20));
    widths.push_back(kib(30));
  }
  for (int period = 0; period < 3; ++period) {
    std::vector<Name> results;
    for (int i = 0; i < layers; ++i) {
      const auto layer = static_cast<size_t>(i);
      std::vector<Touch> touches{read(weights[layer].first, weights[layer].second)};
      if (i > 0) touches.push_back(read(results.back(), widths[layer - 1]));
      results.push_back(loop.history.name());
      touches.push_back({results.back(), KiB(widths[layer]), true});
      loop.op(touches);
    }
    std::vector<Name> gradients;
    for (int i = layers - 1; i >= 0; --i) {
      const auto layer = static_cast<size_t>(i);
      const Name gradient = loop.history.name();
      loop.op({read(results[layer], widths[layer]),
               read(weights[layer].first, weights[layer].second),
               {gradient, KiB(weights[layer].second), true}});
      loop.history.died(results[layer]);
      gradients.push_back(gradient);
    }
    for (int i = 0; i < layers; ++i) {
      const auto layer = static_cast<size_t>(i);
      const Name gradient = gradients[gradients.size() - 1 - layer];
      loop.op(
          {{weights[layer].first, KiB(weights[layer].second), true}, read(gradient, weights[layer].second)});
      loop.history.died(gradient);
    }
  }
  EXPECT_EQ(loop.found, 3 * layers);
  return make_program(loop.history, loop.found).value();
}

// Bytes between two uses at each operator, counted operator by operator over many periods.
int64_t count_most_alive(const Program& program) {
  std::map<Name, std::array<int64_t, 3>> lives;  // First use, last use and size of each block.
  constexpr int64_t kPeriods = 5;
  for (int64_t time = 0; time < kPeriods * program.length(); ++time) {
    for (const Program::Use& use : program.uses_of(time % program.length())) {
      const Name name = 1000 + use.slot.name(time / program.length() * program.births);
      auto& life =
          lives.try_emplace(use.slot.lasting ? -use.slot.number : name, std::array{time, time, int64_t{0}})
              .first->second;
      life[1] = time;
      life[2] = round_up(use.size).count();
    }
  }
  int64_t most = 0;
  for (int64_t time = 2 * program.length(); time < 3 * program.length(); ++time) {
    int64_t alive = 0;
    for (const auto& [name, life] : lives) alive += life[0] <= time && time <= life[1] ? life[2] : 0;
    most = std::max(most, alive);
  }
  return most;
}

TEST(Bound, IsWhatIsAliveBeyondTheSpaceAndNoScheduleIsBelowIt) {
  double most_above = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    Loop loop;
    const Program program = random_training(seed, 24, loop);
    const int64_t alive = count_most_alive(program);
    EXPECT_EQ(live_excess(uses_at(program, kGpu), Bytes(0)).count(), alive) << "seed " << seed;
    EXPECT_EQ(live_excess(uses_at(program, kGpu), Bytes(alive)), Bytes(0)) << "seed " << seed;
    for (const int64_t percent : {90, 70, 50, 30}) {
      const Bytes space(alive * percent / 100);
      const Bytes bound = live_excess(uses_at(program, kGpu), space);
      const Schedule made = make_schedule(uses_at(program, kGpu), space);
      EXPECT_GE(made.arriving, bound) << "seed " << seed << ", " << percent << " %";
      most_above = std::max(most_above,
                            static_cast<double>(made.arriving.count()) / static_cast<double>(bound.count()));
    }
  }
  EXPECT_LT(most_above, 3) << "of these small ones, with blocks as large as a tenth of the room";
}

// Gradients die between two periods: after a period's last operator, when its program has been made already.
TEST(Program, HasTheDeathsBehindItsLastStep) {
  Loop loop;
  const Name weight = loop.history.name();
  Name result = 0;
  for (int period = 0; period < 3; ++period) {
    if (result != 0) loop.history.died(result);
    loop.op({read(weight)});
    result = loop.history.name();
    loop.op({read(weight), {result, KiB(1), true}});
  }
  const Program program = make_program(loop.history, 2).value();
  ASSERT_EQ(program.deaths.size(), 1u);
  EXPECT_EQ(program.deaths.front().after, 1);
  EXPECT_EQ(program.deaths.front().slot.number, 1) << "of this period, as it will be";
}

TEST(Program, TakesTheLessOfTwoPeriodsTimes) {
  Loop loop;
  const Name weight = loop.history.name();
  // The last one runs concurrently with another program's kernels.
  for (int i = 0; i < 40; ++i) loop.op({read(weight)}, i == 39 ? 3.0 : 2.0);
  const Program program = make_program(loop.history, 1).value();
  EXPECT_EQ(program.touched_in(0, kGpu, {.memory = 1e9}), 2e9);
  EXPECT_EQ(uses_at(program, kGpu, {.memory = 1e9}).touched.back(), 2'000'000'000);
  EXPECT_EQ(program.touched_in(0, kGpu, {}), (8 << 20) + 1024) << "nobody knows how fast its memory is";
  EXPECT_EQ(program.touched_in(0, NodeId{5}, {.memory = 1e9}), 8 << 20) << "it runs elsewhere";
  EXPECT_TRUE(program.is_timed());
  EXPECT_EQ(repeated(program, 3).steps.back().seconds, 2.0F);
}

TEST(Schedule, IsNotMistakenByTheDeathsOfOldBlocks) {
  Loop loop;
  Program program = random_training(1, 24, loop);
  const Bytes space(count_most_alive(program) * 7 / 10);
  const Schedule wanted = make_schedule(uses_at(program, kGpu), space);
  for (int64_t old = 1; old < 200; ++old)  // Each has the number of a block of this period, many periods ago.
    program.deaths.push_back({old % program.length(), {old - 5 * program.births, false}});
  const Schedule made = make_schedule(uses_at(program, kGpu), space);
  EXPECT_EQ(made.arriving, wanted.arriving);
  EXPECT_EQ(made.leaving, wanted.leaving);
  EXPECT_EQ(made.moves.size(), wanted.moves.size());
}

// Each period reads the next of many blocks that were made before all periods.
TEST(Uses, OfAPoolAreNotOfWhatEachPeriodMakes) {
  Loop loop;
  const Name weight = loop.history.name();
  std::vector<Name> pool;
  for (int i = 0; i < 5000; ++i) pool.push_back(loop.history.name());
  for (size_t period = 0; period < 40; ++period) {
    const Name result = loop.history.name();
    loop.op({read(weight, 100), read(pool[period], 8), {result, KiB(16), true}});
    loop.op({read(weight, 100)});
    loop.op({read(weight, 100), read(result, 16)});
    loop.history.died(result);
  }
  ASSERT_EQ(loop.found, 3);
  const Uses uses = uses_at(make_program(loop.history, 3).value(), kGpu);
  EXPECT_EQ(live_excess(uses, Bytes(0)), KiB(100 + 8 + 16));
  EXPECT_EQ(shortage(uses, Bytes(0)), KiB(100 + 8 + 16));
  ASSERT_EQ(uses.gaps.size(), 1u) << "between the result's two uses";
  EXPECT_EQ(uses.gaps.front().end - uses.gaps.front().begin, 1);
}

// An epoch's last periods read the blocks of its first ones again: two ages share one number.
TEST(Uses, OfAnOldBlockBeginWithTheFirstThatFollowOneAnother) {
  Program program;
  program.births = 1;
  program.steps = {{1, 0, 1, kGpu}, {2, 2, 1, kGpu}, {3, 4, 1, kGpu}};
  const auto of = [](int64_t number) { return Program::Use{{number, false}, KiB(1), number == 1, false}; };
  // Number 1 is made in the period; -9 and -10 are ten and eleven periods old; -90 is as old as a block
  // unseen for long.
  program.uses = {of(1), of(-9), of(-10), of(-90), of(0), of(-9)};
  program.deaths = {{2, {-10, false}}, {2, {-90, false}}, {2, {0, false}}};
  const Uses uses = uses_at(program, kGpu);
  ASSERT_EQ(uses.blocks.size(), 3u);
  std::map<int64_t, bool> written;
  for (const Uses::Life& life : uses.blocks) written[life.slot.number] = life.written;
  EXPECT_EQ(written, (std::map<int64_t, bool>{{1, true}, {-9, false}, {-90, false}}));
  EXPECT_EQ(uses.alive, (std::vector<int64_t>{4096, 5120, 5120})) << "of 1 and of -9 two at once";
}

TEST(Schedule, OfOneOperatorFetchesBeforeTheUse) {
  Loop loop;
  const Name weight = loop.history.name();
  std::vector<Name> results;
  for (size_t period = 0; period < 40; ++period) {
    results.push_back(loop.history.name());
    std::vector<Touch> touches{read(weight, 10), {results.back(), KiB(8), true}};
    if (period >= 2) touches.push_back(read(results[period - 2], 8));
    loop.op(touches);
    if (period >= 2) loop.history.died(results[period - 2]);
  }
  ASSERT_EQ(loop.found, 1);
  const Uses uses = uses_at(make_program(loop.history, 1).value(), kGpu);
  const Schedule made = make_schedule(uses, KiB(10 + 3 * 8 - 4));
  int64_t there = 0;
  for (const PlannedMove& move : made.moves) {
    EXPECT_EQ(move.after, 0);
    EXPECT_EQ(move.slot.number, move.arrives ? 0 : 1) << "it is used in the period in which it is -1";
    there += move.arrives ? 1 : 0;
  }
  EXPECT_EQ(there, 1);
}

TEST(Schedule, IsTheShortestOfThoseThatAreMade) {
  int better = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    Loop loop;
    const Program program = random_training(seed, 24, loop);
    const Uses uses = uses_at(program, kGpu);
    const Bytes space(program.touched_at(kGpu).count() * 6 / 10);
    const double time = make_schedule(uses, space).time;
    for (const CoverWeights::Out out : {CoverWeights::Out::fresh, CoverWeights::Out::first}) {
      const CoverWeights one{.out = out};
      const double alone = make_schedule(uses, space, std::span(&one, 1)).time;
      EXPECT_LE(time, alone) << "seed " << seed;
      better += time < alone ? 1 : 0;
    }
  }
  EXPECT_GT(better, 20) << "neither of the two is the best of all";
}

TEST(Schedule, FitsTheSpaceAndForgetsNothing) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    Loop loop;
    const Program program = random_training(seed, 24, loop);
    const Bytes all = program.touched_at(kGpu);
    for (const int64_t percent : {90, 70, 50, 30}) {
      const Bytes space(all.count() * percent / 100);
      const Schedule made = make_schedule(uses_at(program, kGpu), space);
      Pager pager(program, space);
      int64_t births = loop.history.births();
      for (int period = 0; period < 4; ++period, births += program.births) pager.period(made.moves, births);
      EXPECT_EQ(pager.demanded_, 0) << "seed " << seed << ", " << percent << " %";
      EXPECT_EQ(pager.evicted_, 0) << "seed " << seed << ", " << percent << " %";
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Schedule, WhatStaysIsNotAskedToLeave) {
  Loop loop;
  std::vector<Name> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(loop.history.name());
  for (int period = 0; period < 4; ++period)
    for (size_t i = 0; i < blocks.size(); ++i) loop.op({{blocks[i], KiB(100), false, i < 5}});
  const Schedule made = make_schedule(uses_at(make_program(loop.history, 10).value(), kGpu), KiB(800));
  EXPECT_FALSE(made.moves.empty());
  for (const PlannedMove& move : made.moves) EXPECT_GT(move.slot.number, 5);
}

// Simulates the host below a GPU and the disk below the host: where each block is after each step of the
// schedules.
class Tiers {
 public:
  Tiers(const Program& program, const Schedule& gpu, const Schedule& host, Bytes space)
      : program_(program), space_(space.count()) {
    moves_ = gpu.moves;
    moves_.insert(moves_.end(), host.moves.begin(), host.moves.end());
    std::stable_sort(moves_.begin(), moves_.end(),
                     [](const PlannedMove& a, const PlannedMove& b) { return a.after < b.after; });
  }

  void period(int64_t births_before) {
    read = late = 0;
    size_t next = 0;
    for (int64_t step = 0; step < program_.length(); ++step) {
      for (const Program::Death& death : program_.deaths)
        if (death.after == step) drop(death.slot.name(births_before));
      const size_t first = next;
      while (next < moves_.size() && moves_[next].after == step) ++next;
      for (const bool arrives : {false, true}) {  // Departures come first.
        for (size_t i = first; i < next; ++i)
          if (moves_[i].arrives == arrives) make(moves_[i], moves_[i].slot.name(births_before));
      }
      ASSERT_LE(used_, space_) << "step " << step;
    }
  }

  int read = 0;  // Reads from the disk in the period.
  int late = 0;  // Moves to the GPU whose block was still on the disk.

 private:
  void make(const PlannedMove& move, Name name) {
    if (!move.stored && !move.arrives) {
      put(name, move.size.count());
    } else if (!move.stored) {
      if (below_.erase(name) != 0) ++late;
    } else if (!move.arrives) {
      const bool was_here = here_.contains(name);
      drop(name);
      if (was_here) below_.insert(name);
    } else if (below_.erase(name) != 0) {
      ++read;
      put(name, move.size.count());
    }
  }
  void put(Name name, int64_t size) {
    below_.erase(name);
    if (here_.emplace(name, size).second) used_ += size;
  }
  void drop(Name name) {
    below_.erase(name);
    const auto found = here_.find(name);
    if (found == here_.end()) return;
    used_ -= found->second;
    here_.erase(found);
  }

  const Program& program_;
  const int64_t space_;
  std::vector<PlannedMove> moves_;
  int64_t used_ = 0;
  std::map<Name, int64_t> here_;  // Bytes of each block at the host.
  std::set<Name> below_;
};

TEST(Backing, FitsTheHostsSpaceAndReturnsBeforeItIsNeededAbove) {
  int read = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    Loop loop;
    const Program program = random_training(seed, 24, loop);
    const Uses uses = uses_at(program, kGpu);
    const Bytes all = program.touched_at(kGpu);
    const Schedule gpu = make_schedule(uses, Bytes(all.count() * 4 / 10));
    const Uses backing = uses_of_backing(kHost, uses, {&gpu, 1});
    for (const int64_t percent : {60, 40, 30}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(percent) + " %");
      const Bytes space(all.count() * percent / 100);
      const Schedule host = make_backing_schedule(backing, space, {&gpu, 1});
      Tiers tiers(program, gpu, host, space);
      int64_t births = loop.history.births();
      for (int period = 0; period < 4; ++period, births += program.births) tiers.period(births);
      EXPECT_EQ(tiers.late, 0);
      read += tiers.read;
      if (HasFatalFailure()) return;
    }
    const Bytes most = shortage(backing, Bytes(0));
    EXPECT_TRUE(make_backing_schedule(backing, most, {&gpu, 1}).moves.empty())
        << "what fits the host does not go on";
    EXPECT_FALSE(make_backing_schedule(backing, most - Bytes(1), {&gpu, 1}).moves.empty());
  }
  EXPECT_GT(read, 1000);
}

TEST(History, KeepsABoundedPast) {
  History history;
  constexpr int64_t kOperators = 1'200'000;
  for (int64_t i = 0; i < kOperators; ++i) {
    const Name name = history.name();
    history.ended(kGpu, std::array{Touch{name, KiB(1), true}});
    history.died(name);
  }
  EXPECT_EQ(history.end(), kOperators);
  EXPECT_LE(history.end() - history.begin(), static_cast<int64_t>(2 * History::kKept));
  EXPECT_EQ(history.deaths_from(0).size(), static_cast<size_t>(history.end() - history.begin()));
  EXPECT_EQ(history.deaths_from(history.end() - 7).size(), 7u);
  EXPECT_EQ(history.touches(history.begin())[0].block, history.begin() + 1);
}

}  // namespace
}  // namespace innkeeper::plan
