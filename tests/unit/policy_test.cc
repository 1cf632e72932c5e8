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

struct PlacementRow {
  const char* why;
  std::vector<NodeView> nodes;
  Bytes operands;
  NodeId home;
  NodeId chosen;
};

constexpr NodeId kA{0}, kB{1}, kC{2};

const PlacementRow kPlacements[] = {
    {"there is none", {}, Bytes(0), kA, kNoNode},
    {"the only one", {{.node = kB, .budget = Bytes(1)}}, Bytes(9), kA, kB},
    {"most bytes are there",
     {{kA, Bytes(10), Bytes(5), Bytes(100)}, {kB, Bytes(20), Bytes(5), Bytes(100)}},
     Bytes(30),
     kA,
     kB},
    {"home breaks a tie",
     {{kA, Bytes(10), Bytes(50), Bytes(100)}, {kB, Bytes(10), Bytes(5), Bytes(100)}},
     Bytes(20),
     kB,
     kB},
    {"nothing is anywhere: home",
     {{kA, Bytes(0), Bytes(90), Bytes(100)}, {kB, Bytes(0), Bytes(5), Bytes(100)}},
     Bytes(20),
     kB,
     kB},
    {"home is elsewhere: the one with more room",
     {{kA, Bytes(0), Bytes(5), Bytes(100)}, {kB, Bytes(0), Bytes(90), Bytes(100)}},
     Bytes(20),
     kC,
     kB},
    {"the operands do not fit where most of them are",
     {{kA, Bytes(50), Bytes(5), Bytes(60)}, {kB, Bytes(20), Bytes(5), Bytes(100)}},
     Bytes(70),
     kA,
     kB},
    {"they fit nowhere",
     {{kA, Bytes(50), Bytes(5), Bytes(60)}, {kB, Bytes(20), Bytes(5), Bytes(65)}},
     Bytes(70),
     kB,
     kA},
    {"pinned by the user",
     {{kA, Bytes(50), Bytes(5), Bytes(100)}, {kB, Bytes(1), Bytes(5), Bytes(100), true}},
     Bytes(51),
     kA,
     kB},
};

TEST(Placement, ChoosesByRule) {
  for (const PlacementRow& row : kPlacements) {
    EXPECT_EQ(choose_node(row.nodes, row.operands, row.home), row.chosen) << row.why;
  }
}

}  // namespace
}  // namespace innkeeper
