#include "sim/cards.h"

#include <gtest/gtest.h>

#include <set>

#include "sim/clock.h"

namespace innkeeper::sim {
namespace {

TEST(Cards, AreFoundByName) {
  for (const char* name : {"H200", "H100", "A100", "RTX 4090", "L4"}) {
    ASSERT_TRUE(find_card(name)) << name;
    EXPECT_EQ(find_card(name)->name, name);
  }
  for (const char* name : {"PCIe 4 x16", "PCIe 5 x16", "NVLink 3", "NVLink 4", "NVMe 4", "NVMe 5"}) {
    ASSERT_TRUE(find_link(name)) << name;
  }
  EXPECT_FALSE(find_card("h200"));
  EXPECT_FALSE(find_link("floppy"));
}

TEST(Cards, HaveNamesOfTheirOwnAndPlausibleFigures) {
  std::set<std::string_view> names;
  for (const Card& card : cards()) {
    EXPECT_TRUE(names.insert(card.name).second);
    EXPECT_GE(card.memory, GiB(8));
    EXPECT_GT(card.flops / card.bandwidth, 50) << card.name << ": a card computes far more than it reads";
    EXPECT_LT(card.launch_seconds, 1e-4);
  }
  for (const Link& link : links()) {
    EXPECT_TRUE(names.insert(link.name).second);
    EXPECT_LT(link.bandwidth, default_card().bandwidth);
    EXPECT_GT(link.latency, 0);
  }
}

TEST(Clock, KernelsAreBoundByArithmeticOrByMemory) {
  const Card card{"test", GiB(1), 100, 10, 0.5};
  EXPECT_DOUBLE_EQ(kernel_seconds(card, {}), 0.5);
  EXPECT_DOUBLE_EQ(kernel_seconds(card, {.flops = 200, .bytes = 10}), 2.5);
  EXPECT_DOUBLE_EQ(kernel_seconds(card, {.flops = 200, .bytes = 40}), 4.5);
  EXPECT_DOUBLE_EQ(copy_within_seconds(card, 10), 2.5);
  EXPECT_DOUBLE_EQ(copy_seconds({"test", 8, 0.25}, 16), 2.25);
}

}  // namespace
}  // namespace innkeeper::sim
