// The model of a node without plans, compared with the engine on a simulated GPU: bytes exactly, time nearly.
#include "plan/on_demand.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "replay/player.h"
#include "support/parsed_record.h"
#include "support/touches.h"

namespace innkeeper::plan {
namespace {

// A use of a block of one MiB.
Touch of(Name name, bool write = false) { return {name, MiB(1), write}; }

struct Model : OnDemand {
  explicit Model(Bytes space) : OnDemand({.memory = 3e12, .link = 5e10}) { set_space(space); }
};

TEST(OnDemand, FetchesWhatDoesNotFit) {
  Model model(MiB(9));
  for (int period = 0; period < 3; ++period)
    for (Name name = 1; name <= 10; ++name) model.ended(std::vector{of(name)}, 1e-6);
  EXPECT_EQ(model.cost().arrived, MiB(20)) << "by the order of use none of ten is there again";
  const double before = model.cost().seconds;
  for (int period = 0; period < 20; ++period)
    for (Name name = 1; name <= 10; ++name) model.ended(std::vector{of(name)}, 1e-6);
  EXPECT_LT(model.cost().arrived, MiB(20 + 20 * 6)) << "what returns is known, and some stay";
  EXPECT_GT(model.cost().seconds - before, 20 * 10 * 1e-6) << "operators wait for their operands";
}

TEST(OnDemand, WhatFitsCostsItsKernels) {
  Model model(MiB(10));
  for (int period = 0; period < 3; ++period)
    for (Name name = 1; name <= 10; ++name) model.ended(std::vector{of(name, true)}, 1e-6);
  EXPECT_EQ(model.cost().arrived, Bytes(0));
  EXPECT_NEAR(model.cost().seconds, 30e-6, 1e-9);
}

TEST(OnDemand, DeadBlocksFreeTheirMemory) {
  Model model(MiB(4));
  for (Name name = 1; name <= 100; ++name) {
    model.ended(std::vector{of(name, true)}, 1e-6);
    if (name > 3) model.died(name - 3);
  }
  EXPECT_EQ(model.cost().arrived, Bytes(0));
  EXPECT_NEAR(model.cost().seconds, 100e-6, 1e-9) << "no result waits for a copy out";
}

TEST(OnDemand, AResultWaitsForTheMemoryThatCopiesOutFree) {
  Model model(MiB(4));
  for (Name name = 1; name <= 100; ++name) model.ended(std::vector{of(name, true)}, 1e-6);
  EXPECT_GT(model.cost().seconds, 96 * 20e-6) << "a MiB takes 20 us on the link";
}

TEST(OnDemand, WhatAnotherNodeWritesComesBack) {
  Model model(MiB(4));
  model.ended(std::vector{of(1, true)}, 1e-6);
  model.written_elsewhere(1);
  model.written_elsewhere(2);  // never here
  model.ended(std::vector{of(1)}, 1e-6);
  EXPECT_EQ(model.cost().arrived, MiB(1));
}

TEST(OnDemand, WhatStaysDoesNotLeave) {
  Model model(MiB(2));
  Touch pinned = of(1);
  pinned.stays = true;
  model.ended(std::vector{pinned}, 1e-6);
  for (Name name = 2; name <= 9; ++name) model.ended(std::vector{of(name)}, 1e-6);
  const Bytes before = model.cost().arrived;
  model.ended(std::vector{pinned}, 1e-6);
  EXPECT_EQ(model.cost().arrived, before);
}

// Training steps over kLayers layers, some of which are left out: weights, activations that backward reads,
// gradients.
std::string varying_program(uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::string text;
  const auto access = [](uint64_t block, uint64_t kib, char kind) {
    return " " + std::to_string(block) + ":" + std::to_string(kib << 10) + kind;
  };
  const auto op = [&](const std::string& accesses) {
    text += "O op =" + std::to_string(uint64_t{1} << (28 + draw() % 6)) + ",100000,1" + accesses + "\n";
  };
  constexpr uint64_t kLayers = 24;
  const auto kib = [](uint64_t layer) { return 128 + 512 * (layer % 5); };
  for (uint64_t layer = 1; layer <= kLayers; ++layer) op(access(layer, 1024, 'o'));
  uint64_t next = 100;
  for (int step = 0; step < 30; ++step) {
    std::vector<std::pair<uint64_t, uint64_t>> kept;  // Pairs of a layer and the block it made.
    for (uint64_t layer = 1; layer <= kLayers; ++layer) {
      if (draw() % 5 == 0) continue;
      std::string reads = access(layer, 1024, 'r');
      if (!kept.empty()) reads += access(kept.back().second, kib(kept.back().first), 'r');
      op(reads + access(next, kib(layer), 'o'));
      kept.emplace_back(layer, next++);
    }
    for (; !kept.empty(); kept.pop_back()) {
      const auto [layer, made] = kept.back();
      op(access(made, kib(layer), 'r') + access(layer, 1024, 'w'));
      text += "F " + std::to_string(made) + "\n";
    }
    text += "M step\n";
  }
  return text;
}

class ComparedWithTheEngine : public ::testing::TestWithParam<std::tuple<int, double>> {};

TEST_P(ComparedWithTheEngine, TheModelMovesTheSameBytesInTheSameTime) {
  const auto [seed, share] = GetParam();
  const trace::AccessRecord record = test::parsed(varying_program(static_cast<uint64_t>(seed)));
  const replay::Setup all{};
  const Bytes space(
      static_cast<int64_t>(share * static_cast<double>(replay::play(record, all).value().peak.count())));
  const Result<replay::Played> played = replay::play(record, {.budget = space, .planning = false});
  ASSERT_TRUE(played.ok()) << played.status().message();
  Bytes arrived{0};
  double seconds = 0;
  for (const replay::StepCost& step : played.value().steps) {
    arrived += step.in;
    seconds += step.seconds;
  }

  OnDemand model({.memory = all.gpu.bandwidth, .link = all.link.bandwidth});
  model.set_space(space);
  for (const trace::RecordEntry& entry : record.entries) {
    if (entry.kind == trace::RecordEntry::Kind::freed) model.died(static_cast<Name>(entry.block));
    if (entry.kind != trace::RecordEntry::Kind::operation) continue;
    std::vector<Touch> touches;
    for (const trace::RecordedAccess& access : record.of(entry))
      touches.push_back(
          {static_cast<Name>(access.block), access.size, access.kind != trace::AccessKind::read});
    model.ended(touches, replay::seconds_of(record, entry, all.gpu));
  }
  EXPECT_NEAR(static_cast<double>(model.cost().arrived.count()), static_cast<double>(arrived.count()),
              0.05 * static_cast<double>(arrived.count()));
  EXPECT_GT(arrived, Bytes(0));
  EXPECT_NEAR(model.cost().seconds, seconds, 0.1 * seconds);
}

INSTANTIATE_TEST_SUITE_P(FreeSpaces, ComparedWithTheEngine,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(0.8, 0.6, 0.4)));

}  // namespace
}  // namespace innkeeper::plan
