// What happens between two steps of the engine, made to happen: found by removing lines that no test missed.
#include <gtest/gtest.h>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

// Calls `meddle` once while victims are being chosen: after the engine looked at pins, before it closes any.
class MeddlingPolicy final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "meddling"; }
  size_t choose(std::span<EvictionCandidate> candidates, Bytes shortfall) const override {
    if (meddle) std::exchange(meddle, {})();
    return lru_->choose(candidates, shortfall);
  }

  inline static std::function<void()> meddle;

 private:
  const std::unique_ptr<EvictionPolicy> lru_ = make_lru_policy();
};

std::unique_ptr<EvictionPolicy> make_meddling_policy() { return std::make_unique<MeddlingPolicy>(); }

TEST(Races, I3WhatIsPinnedWhileVictimsAreChosenStays) {
  Machine machine({.budget = KiB(8), .policy = make_meddling_policy});
  const Contents contents = pattern(3000, 1);
  Block* first = machine.make(machine.sim(), contents).value();
  Block* second = machine.make(machine.sim(), contents).value();
  bool pinned = false;
  MeddlingPolicy::meddle = [&] { pinned = first->replica(machine.sim()).word.try_pin(false); };
  Result<Block*> third = machine.make(machine.sim(), pattern(4000, 2));
  ASSERT_TRUE(third.ok()) << third.status().message();
  ASSERT_TRUE(pinned);
  EXPECT_TRUE(machine->has_replica(*first, machine.sim()));
  EXPECT_FALSE(machine->has_replica(*second, machine.sim())) << "the other one left in its place";
  first->replica(machine.sim()).word.remove_pin();
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : {first, second, third.value()}) machine->destroy(block);
}

TEST(Races, WhatHadEscapedAndWasLetGoIsRoomAgain) {
  Machine machine;
  bool held = true;
  machine->set_escape_probe([&](Block&, NodeId) { return held; });
  Block* block = machine.make(machine.sim(), pattern(3000, 1)).value();
  Access access{.block = block};
  ASSERT_TRUE(machine->acquire(machine.sim(), std::span(&access, 1)).ok());
  machine->keep_escaped(machine.sim(), access);
  EXPECT_LT(machine->room(machine.sim()), machine->budget(machine.sim()));
  EXPECT_EQ(machine->stats().escaped, 1);
  held = false;
  EXPECT_EQ(machine->stats().escaped, 0);
  EXPECT_EQ(machine->stats().nodes.at("sim:0").pinned, 0);
  EXPECT_EQ(machine->room(machine.sim()), machine->budget(machine.sim()));
  EXPECT_TRUE(machine->evict(*block).ok());
  machine->destroy(block);
}

// Host memory that a copy still fills outlives the engine's blocks, until the copy is done.
TEST(Races, I5TheEngineEndsAfterTheCopiesUnderWay) {
  std::vector<Block*> blocks;
  Machine machine;
  for (uint64_t i = 0; i < 8; ++i) {
    blocks.push_back(machine.make(machine.sim(), pattern(5000, i)).value());
    ASSERT_TRUE(machine->write_back(*blocks.back()).ok());
  }
  for (Block* block : blocks) machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
