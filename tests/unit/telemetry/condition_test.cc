// Whether other users have a GPU, or a MIG instance of one, and whether the GPU is slowed down.
#include "telemetry/condition.h"

#include <gtest/gtest.h>

#include <utility>

namespace innkeeper::telemetry {
namespace {

Snapshot cards_with(std::vector<Process> processes, bool slowed) {
  Card card;
  card.uuid = "GPU-1";
  card.instances.resize(2);
  card.instances[0].uuid = "MIG-a";
  card.instances[1].uuid = "MIG-b";
  card.mig = true;
  card.clocks = Clocks{.sm_mhz = 1000, .memory_mhz = 1000, .slowed = slowed};
  card.processes = std::move(processes);
  Snapshot cards;
  cards.cards = {card};
  return cards;
}

Process process(int64_t pid, std::string instance = {}) {
  Process made;
  made.pid = pid;
  made.compute = true;
  made.instance_uuid = std::move(instance);
  return made;
}

TEST(Condition, AGpuIsSharedByTwoProcesses) {
  EXPECT_FALSE(condition_of(cards_with({process(1)}, false), "GPU-1").shared);
  EXPECT_TRUE(condition_of(cards_with({process(1), process(2)}, false), "GPU-1").shared);
}

TEST(Condition, AnInstanceIsSharedByItsOwnProcesses) {
  const Snapshot apart = cards_with({process(1, "MIG-a"), process(2, "MIG-b")}, false);
  EXPECT_FALSE(condition_of(apart, "MIG-a").shared);
  EXPECT_FALSE(condition_of(apart, "MIG-b").shared);
  const Snapshot both = cards_with({process(1, "MIG-a"), process(2, "MIG-a")}, false);
  EXPECT_TRUE(condition_of(both, "MIG-a").shared);
  EXPECT_FALSE(condition_of(both, "MIG-b").shared);
  EXPECT_TRUE(condition_of(cards_with({process(1, "MIG-a"), process(2)}, false), "MIG-a").shared);
}

TEST(Condition, HeatSlowsAllInstancesOfACard) {
  EXPECT_TRUE(condition_of(cards_with({}, true), "GPU-1").slowed);
  EXPECT_TRUE(condition_of(cards_with({}, true), "MIG-b").slowed);
  EXPECT_FALSE(condition_of(cards_with({}, false), "MIG-b").slowed);
}

TEST(Condition, WhatIsNotKnownIsNeither) {
  Snapshot cards = cards_with({process(1), process(2)}, true);
  EXPECT_FALSE(condition_of(cards, "GPU-2").shared || condition_of(cards, "GPU-2").slowed);
  cards.cards[0].processes = {};
  cards.cards[0].clocks = {};
  EXPECT_FALSE(condition_of(cards, "GPU-1").shared || condition_of(cards, "GPU-1").slowed);
}

}  // namespace
}  // namespace innkeeper::telemetry
