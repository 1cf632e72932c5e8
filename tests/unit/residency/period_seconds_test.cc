// How long a period took that was planned, and the least that it takes: by the GPU's clock.
#include <gtest/gtest.h>

#include <vector>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

constexpr size_t kPeriodBlocks = 40;
constexpr Bytes kPeriodBlockSize = KiB(64);
constexpr int64_t kLacking = 8;  // Number of blocks that do not fit.

// Statistics of the last period of a program that reads its blocks in a fixed order and runs a kernel of
// `seconds` after each.
PeriodStats period_of(MachineOptions options, double seconds) {
  options.budget = Bytes(kPeriodBlockSize.count() * (static_cast<int64_t>(kPeriodBlocks) - kLacking));
  options.visibility = sim::Visibility::early;
  Machine machine(options);
  sim::Accelerator& gpu = *machine.gpu(machine.sim());
  std::vector<Block*> blocks;
  for (size_t i = 0; i < kPeriodBlocks; ++i) blocks.push_back(machine->create(kPeriodBlockSize));
  while (machine->plans().planning().periods < 3) {
    for (Block* block : blocks) {
      EXPECT_TRUE(machine.run(machine.sim(), {{.block = block, .write = true}}, [](auto) {}).ok());
      gpu.begin_kernel(0);
      gpu.end_kernel(0, {}, {.flops = seconds * gpu.options().gpu.flops(cost::Precision::bf16)});
    }
  }
  const PeriodStats period = machine->plans().planning().period;
  machine->reset_stats();
  EXPECT_EQ(machine->plans().planning().period.seconds, 0);
  for (Block* block : blocks) machine->destroy(block);
  return period;
}

double kernels(double seconds) {
  const double launch = cost::default_gpu().launch_seconds;
  return static_cast<double>(kPeriodBlocks) * (seconds + 2 * launch);
}

TEST(PeriodSeconds, AreThoseOfKernelsWhereTheyTakeLonger) {
  const PeriodStats period = period_of({}, 1e-3);
  EXPECT_EQ(period.bytes_bound, kPeriodBlockSize.count() * kLacking);
  EXPECT_NEAR(period.kernel_seconds, kernels(1e-3), 1e-6);
  EXPECT_EQ(period.seconds_bound, period.kernel_seconds);
  EXPECT_GE(period.seconds, period.seconds_bound);
  EXPECT_LT(period.seconds, 1.05 * period.seconds_bound) << "copies are hidden behind kernels";
}

TEST(PeriodSeconds, AreThoseOfCopiesWhereTheyTakeLonger) {
  const cost::LinkModel slow{"slow", 1e8, 0};
  const PeriodStats period = period_of({.link = slow}, 1e-6);
  EXPECT_NEAR(period.kernel_seconds, kernels(1e-6), 1e-6);
  EXPECT_NEAR(period.seconds_bound, static_cast<double>(kPeriodBlockSize.count() * kLacking) / slow.bandwidth,
              1e-6);
  EXPECT_GE(period.seconds, period.seconds_bound);
}

TEST(PeriodSeconds, AreUnknownWithoutAMeasurement) {
  const PeriodStats period = period_of({.measured = false}, 1e-3);
  EXPECT_GT(period.bytes_bound, 0);
  EXPECT_EQ(period.seconds, 0);
  EXPECT_EQ(period.kernel_seconds, 0);
  EXPECT_EQ(period.seconds_bound, 0);
}

// A block that is absent while kernels take long, not while they touch many bytes: its copies have the time.
TEST(PeriodSeconds, AndNotBytesSayWhatLeavesWhileKernelsRun) {
  cost::GpuModel quick = cost::default_gpu();
  quick.launch_seconds = 1e-9;
  const cost::LinkModel link{"fast", quick.bytes() / 3, 0};  // Carries a block in the time of touching three.
  const Bytes size = MiB(4);
  Machine machine({.budget = Bytes(size.count() * 4 - KiB(512).count()), .gpu = quick, .link = link});
  sim::Accelerator& gpu = *machine.gpu(machine.sim());
  const auto make = [&] { return machine->create(size); };
  Block* const behind_large = make();
  Block* const before_long = make();
  Block* const large = make();
  Block* const small = machine->create(KiB(4));
  Block* const once = machine->create(KiB(4));  // Marks the period, which the planner detects by it.
  const auto run = [&](Block* block, double seconds = 0) {
    EXPECT_TRUE(machine.run(machine.sim(), {{.block = block, .write = true}}, [](auto) {}).ok());
    gpu.begin_kernel(0);
    gpu.end_kernel(0, {}, {.flops = seconds * quick.flops(cost::Precision::bf16)});
  };
  run(large);
  ASSERT_TRUE(machine->requests().pin(*large, machine.sim()).ok());
  for (int period = 0; period < 40; ++period) {
    run(once);
    run(behind_large);
    for (int i = 0; i < 10; ++i) run(large);
    run(before_long);
    for (int i = 0; i < 4; ++i) run(small);
    Block* const passing = make();
    run(passing);
    machine->destroy(passing);
    for (int i = 0; i < 4; ++i) run(small);
    run(behind_large);
    for (int i = 0; i < 10; ++i) run(small, 1e-3);
    run(before_long);
  }
  bool long_ones = false;
  for (const BlockMoves& moved : machine->plans().planned_moves()) {
    EXPECT_NE(moved.block, static_cast<uint64_t>(behind_large->id()));
    long_ones |= moved.block == static_cast<uint64_t>(before_long->id());
  }
  EXPECT_TRUE(long_ones) << "it has ten milliseconds to come back";
  machine->requests().unpin(*large);
  for (Block* block : {behind_large, before_long, large, small, once}) machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
