#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "policy/eviction.h"
#include "policy/placement.h"

namespace innkeeper {
namespace {

// The tags of those that a policy takes, in order.
std::vector<uint64_t> taken(const EvictionPolicy& policy, std::vector<EvictionCandidate> candidates,
                            Bytes shortfall) {
  const size_t count = policy.choose(candidates, shortfall);
  std::vector<uint64_t> tags;
  for (size_t i = 0; i < count; ++i) tags.push_back(candidates.at(i).tag);
  return tags;
}

using Tags = std::vector<uint64_t>;

TEST(LruPolicy, TakesTheLeastRecentlyUsedUntilThereIsEnough) {
  const auto policy = make_lru_policy();
  EXPECT_EQ(policy->name(), "lru");
  const std::vector<EvictionCandidate> candidates = {{.tag = 1, .size = Bytes(100), .last_use = 30},
                                                     {.tag = 2, .size = Bytes(100), .last_use = 10},
                                                     {.tag = 3, .size = Bytes(100), .last_use = 20},
                                                     {.tag = 4, .size = Bytes(100), .last_use = 40}};
  EXPECT_EQ(taken(*policy, candidates, Bytes(1)), Tags({2}));
  EXPECT_EQ(taken(*policy, candidates, Bytes(100)), Tags({2}));
  EXPECT_EQ(taken(*policy, candidates, Bytes(101)), Tags({2, 3}));
  EXPECT_EQ(taken(*policy, candidates, Bytes(1000)), Tags({2, 3, 1, 4}));
  EXPECT_EQ(taken(*policy, candidates, Bytes(0)), Tags());
  EXPECT_EQ(taken(*policy, {}, Bytes(10)), Tags());
}

TEST(LruPolicy, OfThoseUsedTogetherSparesGoFirstThenTheLarger) {
  const auto policy = make_lru_policy();
  const std::vector<EvictionCandidate> candidates = {
      {.tag = 1, .size = Bytes(500), .last_use = 7},
      {.tag = 2, .size = Bytes(900), .last_use = 7},
      {.tag = 3, .size = Bytes(100), .last_use = 7, .spare = true},
      {.tag = 4, .size = Bytes(100), .last_use = 6}};
  EXPECT_EQ(taken(*policy, candidates, Bytes(5000)), Tags({4, 3, 2, 1}));
}

TEST(LruPolicy, KeepsEveryCandidateAndTakesAPrefixOfTheSortedOrder) {
  const auto policy = make_lru_policy();
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<EvictionCandidate> candidates(random() % 40);
    std::vector<uint64_t> uses;
    for (size_t i = 0; i < candidates.size(); ++i) {
      candidates[i] = {
          .tag = i, .size = Bytes(static_cast<int64_t>(1 + random() % 100)), .last_use = random() % 1000};
      uses.push_back(candidates[i].last_use);
    }
    const Bytes shortfall(static_cast<int64_t>(random() % 2000));
    const size_t count = policy->choose(candidates, shortfall);
    std::sort(uses.begin(), uses.end());
    Bytes sum{0};
    std::set<uint64_t> tags;
    for (size_t i = 0; i < candidates.size(); ++i) {
      tags.insert(candidates[i].tag);
      if (i >= count) continue;
      EXPECT_LT(sum, shortfall) << "one more than needed";
      sum += candidates[i].size;
      EXPECT_EQ(candidates[i].last_use, uses[i]);
    }
    EXPECT_EQ(tags.size(), candidates.size());
    EXPECT_TRUE(sum >= shortfall || count == candidates.size());
  }
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
