// Whether other users have a GPU, or a MIG instance of one, and whether the GPU is slowed down.
#include "telemetry/condition.h"

#include <gtest/gtest.h>

#include <utility>

namespace innkeeper::telemetry {
namespace {

Snapshot gpus_with(std::vector<Process> processes, bool slowed) {
  Gpu gpu;
  gpu.uuid = "GPU-1";
  gpu.instances.resize(2);
  gpu.instances[0].uuid = "MIG-a";
  gpu.instances[1].uuid = "MIG-b";
  gpu.mig = true;
  gpu.clocks = Clocks{.sm_mhz = 1000, .memory_mhz = 1000, .slowed = slowed};
  gpu.processes = std::move(processes);
  Snapshot gpus;
  gpus.gpus = {gpu};
  return gpus;
}

Process process(int64_t pid, std::string instance = {}) {
  Process made;
  made.pid = pid;
  made.compute = true;
  made.instance_uuid = std::move(instance);
  return made;
}

TEST(Condition, AGpuIsSharedByTwoProcesses) {
  EXPECT_FALSE(condition_of(gpus_with({process(1)}, false), "GPU-1").shared);
  EXPECT_TRUE(condition_of(gpus_with({process(1), process(2)}, false), "GPU-1").shared);
}

TEST(Condition, AnInstanceIsSharedByItsOwnProcesses) {
  const Snapshot apart = gpus_with({process(1, "MIG-a"), process(2, "MIG-b")}, false);
  EXPECT_FALSE(condition_of(apart, "MIG-a").shared);
  EXPECT_FALSE(condition_of(apart, "MIG-b").shared);
  const Snapshot both = gpus_with({process(1, "MIG-a"), process(2, "MIG-a")}, false);
  EXPECT_TRUE(condition_of(both, "MIG-a").shared);
  EXPECT_FALSE(condition_of(both, "MIG-b").shared);
  EXPECT_TRUE(condition_of(gpus_with({process(1, "MIG-a"), process(2)}, false), "MIG-a").shared);
}

TEST(Condition, HeatSlowsAllInstancesOfAGpu) {
  EXPECT_TRUE(condition_of(gpus_with({}, true), "GPU-1").slowed);
  EXPECT_TRUE(condition_of(gpus_with({}, true), "MIG-b").slowed);
  EXPECT_FALSE(condition_of(gpus_with({}, false), "MIG-b").slowed);
}

TEST(Condition, WhatIsNotKnownIsNeither) {
  Snapshot gpus = gpus_with({process(1), process(2)}, true);
  EXPECT_FALSE(condition_of(gpus, "GPU-2").shared || condition_of(gpus, "GPU-2").slowed);
  gpus.gpus[0].processes = {};
  gpus.gpus[0].clocks = {};
  EXPECT_FALSE(condition_of(gpus, "GPU-1").shared || condition_of(gpus, "GPU-1").slowed);
}

}  // namespace
}  // namespace innkeeper::telemetry
