// Blocks pass between threads with program trackers, and die meanwhile: no planner orders a dead block, and
// every read sees the model's bytes.
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <thread>
#include <vector>

#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

constexpr size_t kBlocks = 24;
constexpr size_t kThreads = 4;
constexpr size_t kProgramBlocks = 10;  // Blocks of a program's period; some are its neighbour's, too.
constexpr int kPasses = 400;

struct Shared {
  std::mutex mutex;  // Orders uses and ends, as PyTorch asks of a program (I8).
  Block* block = nullptr;
  uint64_t contents = 0;
};

TEST(ProgramTrackersStress, BlocksPassFromThreadToThreadAndDie) {
  const Watchdog watchdog(std::chrono::seconds(120));
  Machine machine({.budget = KiB(64), .visibility = sim::Visibility::random, .seed = 3});
  std::array<Shared, kBlocks> blocks;
  const auto fill = [&](Shared& shared, uint64_t contents) {
    shared.contents = contents;
    shared.block = machine.make(machine.sim(), pattern(4096, contents)).value();
  };
  for (size_t i = 0; i < kBlocks; ++i) fill(blocks.at(i), i);
  const auto program = [&](size_t which) {
    for (int pass = 0; pass < kPasses; ++pass) {
      for (size_t i = 0; i < kProgramBlocks; ++i) {
        Shared& shared = blocks.at((which * kBlocks / kThreads + i) % kBlocks);
        const std::scoped_lock lock(shared.mutex);
        if (pass % 20 == 19 && i == static_cast<size_t>(pass / 20) % kProgramBlocks) {
          machine->destroy(shared.block);
          fill(shared, shared.contents + 1000);
        }
        const Result<Contents> bytes = machine.read(*shared.block, machine.sim());
        ASSERT_TRUE(bytes.ok()) << bytes.status().message();
        ASSERT_EQ(bytes.value(), pattern(4096, shared.contents));
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(program, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(machine->check_invariants(), "");
  for (Shared& shared : blocks) machine->destroy(shared.block);
  EXPECT_EQ(machine->table().block_count(), 0u);
}

// Threads whose long periods are planned concurrently. They are interrupted, end, and leave plans that are
// still being made, as the engine does in its destructor.
TEST(ProgramTrackersStress, LongPeriodsArePlannedBesideTheProgram) {
  constexpr size_t kLarge = 200;  // Blocks of 65 KiB; smaller blocks stay resident.
  constexpr size_t kSmall = 10;   // Operators on small blocks after each large one.
  constexpr int kMost = 100;      // Most periods per thread.
  const Watchdog watchdog(std::chrono::seconds(120));
  for (uint64_t seed = 0; seed < 2; ++seed) {
    Machine machine({.budget = MiB(20), .visibility = sim::Visibility::random, .seed = seed});
    machine->plans().plan_in_background();
    const auto program = [&](uint64_t which, int64_t wanted) {
      std::vector<Block*> large;
      for (size_t i = 0; i < kLarge; ++i)
        large.push_back(machine.make(machine.sim(), pattern(65 << 10, which * kLarge + i)).value());
      Block* const small = machine.make(machine.sim(), pattern(64, which)).value();
      for (int round = 0; round < kMost && machine->plans().planning().periods < wanted; ++round) {
        if (which == 0 && round % 4 == 3 && round < 16)
          machine->plans().set_recompute(false);  // Makes the engine plan everything again.
        for (size_t i = 0; i < kLarge; ++i) {
          ASSERT_EQ(machine.read(*large[i], machine.sim()).value(), pattern(65 << 10, which * kLarge + i));
          for (size_t j = 0; j < kSmall; ++j)
            ASSERT_EQ(machine.read(*small, machine.sim()).value(), pattern(64, which));
        }
      }
      for (Block* const block : large) machine->destroy(block);
      machine->destroy(small);
    };
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 2; ++i) threads.emplace_back(program, i, 4);
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(machine->plans().planning().periods, 0);
    EXPECT_EQ(machine->check_invariants(), "");
    EXPECT_EQ(machine->table().block_count(), 0u);
  }
}

}  // namespace
}  // namespace innkeeper::test
