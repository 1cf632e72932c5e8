// Random programs on the engine against the model (model/walk.h), on every machine and with every schedule of
// the simulator: queued work becomes visible as late as it may, early, or at random.
//
// The seed is new in each run and printed. INNKEEPER_SEED replays one, INNKEEPER_STEPS sets the steps of all
// cases together (a million takes some minutes), INNKEEPER_PROGRAM runs one program, as a failure printed it.
// A program that fails is shrunk and printed; each runs in a process of its own, so one that aborts or hangs
// is shrunk too.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

#include "model/walk.h"
#include "support/environment.h"
#include "support/isolated.h"

namespace innkeeper::test {
namespace {

constexpr uint64_t kSteps = 300'000;  // Steps of all cases together.
constexpr size_t kProgram = 400;      // Steps of one program.
constexpr unsigned kLimit = 30;       // Seconds that one program may take (it takes some hundredths).
constexpr unsigned kShrinkLimit = 5;  // Seconds that one program may take while it is shrunk.
constexpr int kShrinkTries = 400;
constexpr std::chrono::seconds kShrinkTime{60};
constexpr sim::Visibility kSchedules[] = {sim::Visibility::late, sim::Visibility::random,
                                          sim::Visibility::early};

struct Ran {
  std::string failure;
  int64_t evictions = 0;
  int64_t fetches = 0;
};

Ran run(const WalkOptions& options, const Program& program, unsigned limit_s = kLimit) {
  const Isolated isolated = run_isolated(
      [&] {
        const WalkResult result = walk(options, program);
        return result.failure.empty()
                   ? "ok " + std::to_string(result.evictions) + " " + std::to_string(result.fetches)
                   : result.failure;
      },
      limit_s);
  if (!isolated.ended.empty()) return {.failure = isolated.ended + " " + isolated.text};
  if (!isolated.text.starts_with("ok ")) return {.failure = isolated.text};
  Ran ran;
  std::sscanf(isolated.text.c_str(), "ok %ld %ld", &ran.evictions, &ran.fetches);
  return ran;
}

void report(const WalkOptions& options, const Program& program, const Ran& ran) {
  const auto end = std::chrono::steady_clock::now() + kShrinkTime;
  const auto fails = [&](const Program& candidate) {
    return std::chrono::steady_clock::now() < end && !run(options, candidate, kShrinkLimit).failure.empty();
  };
  const Program small = shrink(program, fails, kShrinkTries);
  ADD_FAILURE() << ran.failure << "\nshrunk to " << small.size() << " steps: " << run(options, small).failure
                << "\n"
                << to_string(small) << "INNKEEPER_SEED=" << options.machine.seed
                << " INNKEEPER_PROGRAM=" << to_hex(small);
}

class WalkTest : public testing::TestWithParam<std::tuple<size_t, sim::Visibility>> {};

TEST_P(WalkTest, AgreesWithTheModel) {
  const WalkCase& row = walk_cases()[std::get<0>(GetParam())];
  WalkOptions options = row.options;
  options.machine.visibility = std::get<1>(GetParam());
  const uint64_t seed = from_environment("INNKEEPER_SEED", std::random_device()());
  std::cout << "INNKEEPER_SEED=" << seed << std::endl;
  options.machine.seed = seed;
  if (const char* text = std::getenv("INNKEEPER_PROGRAM"); text != nullptr) {
    const Program program = program_of(from_hex(text));
    const Ran ran = run(options, program);
    EXPECT_EQ(ran.failure, "") << to_string(program);
    return;
  }
  const uint64_t steps =
      from_environment("INNKEEPER_STEPS", kSteps) / (walk_cases().size() * std::size(kSchedules)) + 1;
  Ran sum;
  for (uint64_t done = 0; done < steps; done += kProgram) {
    options.machine.seed = seed + done;
    const Program program = random_program(seed + done, std::min<uint64_t>(kProgram, steps - done));
    const Ran ran = run(options, program);
    if (!ran.failure.empty()) return report(options, program, ran);
    sum.evictions += ran.evictions;
    sum.fetches += ran.fetches;
  }
  if (steps >= 1000) {
    EXPECT_GT(sum.evictions, 0);
    EXPECT_GT(sum.fetches, 0);
  }
}

// The shrinker reduces a failing program to few steps.
TEST(Shrink, LeavesWhatMakesItFail) {
  const Program program = random_program(7, 300);
  const auto fails = [](const Program& candidate) {
    const auto is = [](Verb verb) { return [verb](const Step& step) { return step.verb == verb; }; };
    const auto pin = std::find_if(candidate.begin(), candidate.end(), is(Verb::pin));
    return std::find_if(pin, candidate.end(), is(Verb::evict_all)) != candidate.end();
  };
  ASSERT_TRUE(fails(program));
  const Program small = shrink(program, fails, 400);
  EXPECT_EQ(small.size(), 2u) << to_string(small);
  EXPECT_EQ(to_hex(program_of(from_hex(to_hex(small)))), to_hex(small));
}

std::string name_of(const testing::TestParamInfo<WalkTest::ParamType>& test) {
  const char* const visibility[] = {"Early", "Late", "Random"};
  return std::string(walk_cases()[std::get<0>(test.param)].name) +
         visibility[static_cast<size_t>(std::get<1>(test.param))];
}

INSTANTIATE_TEST_SUITE_P(Machines, WalkTest,
                         testing::Combine(testing::Range(size_t{0}, walk_cases().size()),
                                          testing::ValuesIn(kSchedules)),
                         name_of);

}  // namespace
}  // namespace innkeeper::test
