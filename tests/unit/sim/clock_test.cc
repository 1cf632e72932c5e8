#include "sim/clock.h"

#include <gtest/gtest.h>

namespace innkeeper::sim {
namespace {

TEST(Clock, CopiesTakeTheLinksTime) {
  const cost::LinkModel link{"test", 8, 0.25, 4};
  EXPECT_DOUBLE_EQ(copy_seconds(link, 16), 2.25);
  EXPECT_DOUBLE_EQ(copy_seconds(link, 16, HostMemory::pageable), 4.25);
}

TEST(Clock, ACopyWithinAMemoryReadsAndWritesEachByte) {
  cost::GpuModel gpu{
      .name = "test", .memory = GiB(1), .bandwidth = 10, .launch_seconds = 0.5, .reached_bandwidth = 1};
  gpu.rates.fill(1);
  EXPECT_DOUBLE_EQ(copy_within_seconds(gpu, 10), 2.5);
}

}  // namespace
}  // namespace innkeeper::sim
