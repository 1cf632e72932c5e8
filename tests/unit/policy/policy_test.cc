#include <gtest/gtest.h>

#include "policy/eviction.h"
#include "policy/placement.h"

namespace innkeeper {
namespace {

TEST(LruPolicy, TheLeastRecentlyUsedLeavesFirst) {
  const auto policy = make_lru_policy();
  EXPECT_EQ(policy->name(), "lru");
  EXPECT_LT(policy->key({.size = Bytes(1), .last_use = 10}),
            policy->key({.size = Bytes(99), .last_use = 20}));
  EXPECT_LT(policy->key({.last_use = 10}).rank, policy->key({.last_use = 20, .spare = true}).rank);
}

TEST(LruPolicy, OfThoseUsedTogetherSparesGoFirstThenTheLarger) {
  const auto policy = make_lru_policy();
  const EvictionKey spare = policy->key({.size = Bytes(100), .last_use = 7, .spare = true});
  const EvictionKey large = policy->key({.size = Bytes(900), .last_use = 7});
  const EvictionKey small = policy->key({.size = Bytes(500), .last_use = 7});
  EXPECT_LT(spare, large);
  EXPECT_LT(large, small);
  EXPECT_EQ(spare.rank, small.rank);
}

// A block that arrives at `came`, is used until `left`, and leaves.
void stay(ReuseHistory& history, uint64_t before, uint64_t came, uint64_t left) {
  history.came(before, came);
  history.left(left);
}

TEST(ReuseHistory, AreKnownAfterTwo) {
  ReuseHistory history;
  stay(history, 0, 10, 20);
  history.came(20, 120);
  EXPECT_EQ(history.next_use(130), 0u) << "once may be chance";
  history.left(130);
  history.came(130, 230);
  EXPECT_EQ(history.next_use(240), 340u);
}

TEST(ReuseHistory, TheShorterOfTwoGapsCounts) {
  ReuseHistory history;
  stay(history, 0, 10, 10);
  stay(history, 10, 110, 110);
  history.came(110, 310);
  EXPECT_EQ(history.next_use(310), 410u) << "100, then 200";
  history.left(310);
  history.came(310, 610);
  EXPECT_EQ(history.next_use(610), 810u) << "200, then 300: what is longer ago is forgotten";
}

TEST(ReuseHistory, WhatMayBeInUseStillIsNotKnown) {
  ReuseHistory history;
  stay(history, 0, 10, 50);
  stay(history, 50, 1050, 1100);
  history.came(1100, 2100);
  EXPECT_EQ(history.next_use(2080), 0u) << "it was fetched ahead, and not used yet";
  EXPECT_EQ(history.next_use(2120), 0u) << "the last stay was of 50";
  EXPECT_EQ(history.next_use(2150), 3150u);
}

TEST(ReuseHistory, LongSpansAreKeptToOnePartInAThousand) {
  for (uint64_t gap = 1; gap < uint64_t{1} << 40; gap = gap * 3 + 1) {
    ReuseHistory history;
    stay(history, 0, 1, 1);
    stay(history, 1, 1 + gap, 1 + gap);
    history.came(1 + gap, 1 + 2 * gap);
    const auto known = static_cast<double>(history.next_use(1 + 2 * gap) - (1 + 2 * gap));
    EXPECT_LE(known, static_cast<double>(gap));
    EXPECT_GE(known, static_cast<double>(gap) * 0.999);
  }
}

TEST(ReuseDistancePolicy, KnowsTheNextUseOfWhatCameBackAndOrdersTheRestByUse) {
  const auto policy = make_reuse_distance_policy();
  EXPECT_EQ(policy->name(), "reuse-distance");
  EvictionView view{.size = Bytes(1), .last_use = 310};
  EXPECT_EQ(policy->next_use(view, 320), 0u);
  stay(view.reuse_history, 0, 10, 10);
  stay(view.reuse_history, 10, 110, 110);
  view.reuse_history.came(110, 310);
  EXPECT_EQ(policy->next_use(view, 320), 410u);
  EXPECT_EQ(policy->next_use(view, 410), 0u) << "it did not come when it was to";
  EXPECT_EQ(make_lru_policy()->next_use(view, 320), 0u);
  EXPECT_EQ(policy->key(view), make_lru_policy()->key(view));
}

struct PlacementRow {
  const char* why;
  std::vector<NodeView> nodes;
  Bytes operands;
  NodeId home;
  NodeId chosen;
};

constexpr NodeId kNodeA{0}, kNodeB{1}, kNodeC{2};

const PlacementRow kPlacements[] = {
    {"there is none", {}, Bytes(0), kNodeA, kNoNode},
    {"the only one", {{.node = kNodeB, .budget = Bytes(1)}}, Bytes(9), kNodeA, kNodeB},
    {"most bytes are there",
     {{kNodeA, Bytes(10), Bytes(5), Bytes(100)}, {kNodeB, Bytes(20), Bytes(5), Bytes(100)}},
     Bytes(30),
     kNodeA,
     kNodeB},
    {"home breaks a tie",
     {{kNodeA, Bytes(10), Bytes(50), Bytes(100)}, {kNodeB, Bytes(10), Bytes(5), Bytes(100)}},
     Bytes(20),
     kNodeB,
     kNodeB},
    {"nothing is anywhere: home",
     {{kNodeA, Bytes(0), Bytes(90), Bytes(100)}, {kNodeB, Bytes(0), Bytes(5), Bytes(100)}},
     Bytes(20),
     kNodeB,
     kNodeB},
    {"home is elsewhere: the one with more room",
     {{kNodeA, Bytes(0), Bytes(5), Bytes(100)}, {kNodeB, Bytes(0), Bytes(90), Bytes(100)}},
     Bytes(20),
     kNodeC,
     kNodeB},
    {"the operands do not fit where most of them are",
     {{kNodeA, Bytes(50), Bytes(5), Bytes(60)}, {kNodeB, Bytes(20), Bytes(5), Bytes(100)}},
     Bytes(70),
     kNodeA,
     kNodeB},
    {"they fit nowhere",
     {{kNodeA, Bytes(50), Bytes(5), Bytes(60)}, {kNodeB, Bytes(20), Bytes(5), Bytes(65)}},
     Bytes(70),
     kNodeB,
     kNodeA},
    {"pinned by the user",
     {{kNodeA, Bytes(50), Bytes(5), Bytes(100)}, {kNodeB, Bytes(1), Bytes(5), Bytes(100), true}},
     Bytes(51),
     kNodeA,
     kNodeB},
};

TEST(Placement, ChoosesByRule) {
  for (const PlacementRow& row : kPlacements) {
    EXPECT_EQ(choose_node(row.nodes, row.operands, row.home), row.chosen) << row.why;
  }
}

}  // namespace
}  // namespace innkeeper
