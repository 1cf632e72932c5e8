// Choice of the gaps that a schedule spends elsewhere: enough in every step, none in vain, the cheap ones
// first.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/cover.h"

namespace innkeeper::plan {
namespace {

constexpr int64_t kUnit = int64_t{1} << 20;

// A hand-made period: each block lives all the time, unless `dies` ends it.
class Period {
 public:
  explicit Period(int64_t length, int64_t touched = 0) {
    uses.length = length;
    uses.alive.resize(static_cast<size_t>(length));
    for (int64_t step = 0; step <= length; ++step) uses.touched.push_back(step * touched);
  }

  size_t block(int64_t size, bool stays = false) { return blocks(1, size, stays); }
  // Adds `number` blocks and returns the first.
  size_t blocks(int64_t number, int64_t size, bool stays = false) {
    for (int64_t& alive : uses.alive) alive += number * size;
    const size_t first = uses.blocks.size();
    uses.blocks.resize(first + static_cast<size_t>(number), {.slot = {}, .size = size, .stays = stays});
    return first;
  }
  size_t gap(size_t block, int64_t begin, int64_t end, bool returns = true, bool written = true) {
    uses.gaps.push_back({block, begin, end, returns, written, uses.written.size()});
    uses.written.push_back(written);
    return uses.gaps.size() - 1;
  }
  int64_t all() const { return *std::max_element(uses.alive.begin(), uses.alive.end()); }

  // Bytes present in each step while the blocks of these gaps are away.
  std::vector<int64_t> there(const std::vector<size_t>& chosen) const {
    std::vector<int64_t> bytes = uses.alive;
    for (const size_t each : chosen) {
      const Gap& gap = uses.gaps[each];
      each_range(gap.begin, gap.end, uses.length, [&](int64_t first, int64_t last) {
        for (int64_t step = first; step < last; ++step)
          bytes[static_cast<size_t>(step)] -= uses.blocks[gap.block].size;
      });
    }
    return bytes;
  }

  Uses uses;
};

TEST(Cover, IsEnoughInEveryStepAndHasNoGapForNothing) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(random() % static_cast<uint32_t>(limit));
    };
    Period period(10 + below(90), below(2) * kUnit);
    const int64_t length = period.uses.length;
    // Bytes per step of blocks in use, or that always stay.
    std::vector<int64_t> needed(static_cast<size_t>(length));
    for (int64_t blocks = 3 + below(30); blocks > 0; --blocks) {
      const size_t block = period.block(1 + below(3 * kUnit), below(10) == 0);
      const bool stays = period.uses.blocks[block].stays;
      std::vector<int64_t> steps;
      for (int64_t uses = 1 + below(4); uses > 0; --uses) steps.push_back(below(length));
      std::sort(steps.begin(), steps.end());
      for (size_t i = 0; i < steps.size(); ++i) {
        const int64_t next = i + 1 < steps.size() ? steps[i + 1] : steps[0] + length;
        if (steps[i] + 1 < next) period.gap(block, steps[i] + 1, next, below(4) != 0, below(2) == 0);
      }
      for (int64_t step = 0; step < length; ++step) {
        const bool used = std::find(steps.begin(), steps.end(), step) != steps.end();
        if (used || stays) needed[static_cast<size_t>(step)] += period.uses.blocks[block].size;
      }
    }
    for (const int64_t percent : {95, 70, 40, 10}) {
      const int64_t space = period.all() * percent / 100;
      std::vector<size_t> chosen = cover(period.uses, Bytes(space));
      const std::vector<int64_t> there = period.there(chosen);
      for (size_t step = 0; step < there.size(); ++step)
        EXPECT_LE(there[step], std::max(space, needed[step])) << "seed " << seed << ", step " << step;
      for (const size_t each : chosen) {
        EXPECT_FALSE(period.uses.blocks[period.uses.gaps[each].block].stays) << "seed " << seed;
        std::vector<size_t> others = chosen;
        std::erase(others, each);
        const std::vector<int64_t> without = period.there(others);
        bool missed = false;
        for (size_t step = 0; step < without.size(); ++step)
          missed |= without[step] > space && there[step] < without[step];
        EXPECT_TRUE(missed) << "seed " << seed << ": a gap for nothing";
      }
    }
  }
}

// A step that no gap helps costs no search: the search would take quadratic time in the steps.
TEST(Cover, IsQuickWherePinsExceedTheSpace) {
  Period period(100'000, kUnit);
  period.block(2 * kUnit, true);
  const size_t first = period.blocks(50'000, 64);
  for (int64_t i = 0; i < 50'000; ++i)
    period.gap(first + static_cast<size_t>(i), 2 * i + 1, 2 * i + 1 + 100'000 - 1);
  EXPECT_EQ(cover(period.uses, Bytes(kUnit)).size(), 50'000u) << "all that can leave does";
}

TEST(Cover, IsEmptyWhereAllFits) {
  Period period(10);
  period.gap(period.block(kUnit), 1, 10);
  EXPECT_TRUE(cover(period.uses, Bytes(kUnit)).empty());
}

// One of two blocks must be absent in step 50 of 100: the test names the better one.
struct Choice {
  const char* name;
  Gap better, worse;
};

class CoverTakes : public testing::TestWithParam<Choice> {};

TEST_P(CoverTakes, TheOneThatCostsLess) {
  for (const bool turned : {false, true}) {
    Period period(100, 64 * kUnit);
    Gap better = GetParam().better;
    Gap worse = GetParam().worse;
    better.block = period.block(kUnit);
    worse.block = period.block(kUnit);
    period.uses.alive[50] += kUnit;
    worse.version = 1;
    period.uses.written = {better.fresh, worse.fresh};
    period.uses.gaps = turned ? std::vector{better, worse} : std::vector{worse, better};
    for (const CoverWeights::Out out : {CoverWeights::Out::fresh, CoverWeights::Out::first}) {
      const std::vector<size_t> chosen = cover(period.uses, Bytes(2 * kUnit), {.out = out});
      ASSERT_EQ(chosen.size(), 1u);
      EXPECT_EQ(period.uses.gaps[chosen.front()].block, better.block);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, CoverTakes,
    testing::Values(Choice{"what_is_clean", {0, 10, 90, true, false}, {0, 10, 90, true, true}},
                    Choice{"what_never_returns", {0, 10, 90, false, true}, {0, 10, 90, true, true}},
                    Choice{"what_has_time_to_leave", {0, 40, 90, true, true}, {0, 50, 100, true, true}},
                    Choice{"what_has_time_to_return", {0, 10, 60, true, true}, {0, 1, 51, true, true}},
                    Choice{"what_never_returns_if_it_has_time_to_leave",
                           {0, 10, 90, true, false},
                           {0, 50, 51, false, true}}),
    [](const testing::TestParamInfo<Choice>& which) { return std::string(which.param.name); });

// One of the two blocks leaves anyway: its bytes are written out then, and a second absence needs no copy.
TEST(Cover, CountsTheCopyOutOfAVersionOnce) {
  Period period(100, 64 * kUnit);
  const size_t twice = period.block(kUnit);
  const size_t once = period.block(kUnit);
  period.uses.alive[10] += 2 * kUnit;
  period.uses.alive[60] += kUnit;
  period.gap(twice, 1, 40);
  const size_t again = period.gap(twice, 41, 99);
  period.uses.gaps[again].version = period.uses.gaps[0].version;
  period.gap(once, 1, 30);
  const size_t other = period.gap(once, 41, 99);
  period.uses.gaps[again].fresh = false;  // The block is read between its write and the gap.
  period.uses.gaps[other].fresh = false;
  const std::vector<size_t> chosen = cover(period.uses, Bytes(2 * kUnit), {.out = CoverWeights::Out::first});
  EXPECT_EQ(std::count(chosen.begin(), chosen.end(), again), 1);
  EXPECT_EQ(std::count(chosen.begin(), chosen.end(), other), 0);
}

TEST(Cover, TakesWhatIsSmallLast) {
  Period period(100);
  const size_t large = period.block(2 * kUnit);
  period.gap(large, 40, 60);
  for (int i = 0; i < 64; ++i) period.gap(period.block(kUnit / 32), 1, 100, false, false);
  period.uses.alive[50] += kUnit;
  const std::vector<size_t> chosen = cover(period.uses, Bytes(period.all() - kUnit));
  ASSERT_EQ(chosen.size(), 1u) << "many copies' latencies for one";
  EXPECT_EQ(period.uses.gaps[chosen.front()].block, large);
}

TEST(Cover, CountsALifeOfSeveralPeriodsAsOftenAsItIsThere) {
  Period period(10);
  const size_t block = period.block(kUnit);  // Three copies of the block are alive at once.
  for (int64_t& alive : period.uses.alive) alive = 3 * kUnit;
  period.gap(block, 1, 29);
  const std::vector<size_t> chosen = cover(period.uses, Bytes(kUnit));
  ASSERT_EQ(chosen.size(), 1u);
  EXPECT_EQ(period.there(chosen), (std::vector<int64_t>{kUnit, 0, 0, 0, 0, 0, 0, 0, 0, kUnit}));
}

}  // namespace
}  // namespace innkeeper::plan
