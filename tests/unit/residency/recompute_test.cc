// Blocks that the engine discards and recomputes with their operators.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/at_points.h"
#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

// A machine whose results come from known operators: each adds a number to every byte of its operand.
class Kitchen {
 public:
  explicit Kitchen(MachineOptions options = {}) : machine_(options) {
    machine_->plans().set_recompute(true);
    machine_->set_observers({.recorded_calls = [this](Block& block) -> std::unique_ptr<RecordedCall> {
      const auto found = known_.find(&block);
      return found == known_.end() ? nullptr : std::make_unique<Adds>(*this, found->second);
    }});
  }
  ~Kitchen() {
    EXPECT_EQ(machine_->check_invariants(), "");
    EXPECT_EQ(live_, 0) << "recorded calls that nobody let go";
  }

  // The result of an operator at `node` that reads `from`.
  Block* made_of(Block& from, unsigned char number, NodeId node) {
    Block* made = add(from, number, node);
    known_[made] = {&from, from.writes(), made->writes(), number, node};
    return made;
  }
  void destroy(Block* block) {
    known_.erase(block);
    machine_->destroy(block);
  }

  Machine& machine() { return machine_; }
  Engine* operator->() { return &machine_.engine(); }
  int followed = 0;
  std::function<Status()> before;  // Called before a recorded call is followed.
  bool in_force = true;            // Recorded calls are in force.

 private:
  struct How {
    Block* from;
    uint32_t from_writes, writes;
    unsigned char number;
    NodeId node;
  };
  class Adds final : public RecordedCall {
   public:
    Adds(Kitchen& kitchen, const How& how) : kitchen_(kitchen), how_(how), input_{how.from, how.from_writes} {
      ++kitchen_.live_;
    }
    ~Adds() override { --kitchen_.live_; }
    std::span<const Input> inputs() const override { return {&input_, 1}; }
    uint32_t writes() const override { return how_.writes; }
    NodeId node() const override { return how_.node; }
    bool in_force() const override { return kitchen_.in_force; }
    Status follow(Block& block) override {
      if (kitchen_.before) IK_RETURN_IF_ERROR(kitchen_.before());
      ++kitchen_.followed;
      Block* made = kitchen_.add(*how_.from, how_.number, how_.node);
      const Status filled = kitchen_->recomputer().refill(block, *made, how_.node);
      kitchen_->destroy(made);
      return filled;
    }

   private:
    Kitchen& kitchen_;
    const How how_;
    const Input input_;
  };

  Block* add(Block& from, unsigned char number, NodeId node) {
    Result<Block*> made =
        machine_.run_for_result(node, {{.block = &from}}, from.size(), Bytes(0), [number](auto operands) {
          for (size_t i = 0; i < operands[0].size(); ++i)
            operands[1][i] = static_cast<unsigned char>(operands[0][i] + number);
        });
    IK_CHECK(made.ok(), made.status().message());
    return made.value();
  }

  Machine machine_;
  std::map<Block*, How> known_;
  int live_ = 0;
};

Contents filled(unsigned char byte, size_t size = 4096) { return Contents(size, byte); }

class Recompute : public ::testing::Test {
 protected:
  Block& source(unsigned char byte) {
    Result<Block*> made = kitchen_.machine().make(at_, filled(byte));
    IK_CHECK(made.ok(), made.status().message());
    sources_.push_back(made.value());
    return *made.value();
  }
  void TearDown() override {
    for (Block* block : sources_) kitchen_.destroy(block);
  }
  // A block without a replica: the engine recomputes it with the operator that adds `number` to `from`.
  Block* discarded_block(Block& from, unsigned char number = 4) {
    Block* made = kitchen_.made_of(from, number, at_);
    EXPECT_TRUE(kitchen_->recomputer().discard(*made, at_));
    return made;
  }
  Contents seen(Block& block, NodeId node) {
    Result<Contents> contents = kitchen_.machine().read(block, node);
    EXPECT_TRUE(contents.ok()) << contents.status().message();
    return contents.ok() ? contents.value() : Contents();
  }

  Kitchen kitchen_{{.accelerators = 2}};
  NodeId at_ = kitchen_.machine().sim();
  std::vector<Block*> sources_;
};

TEST_F(Recompute, ADiscardedBlockTakesNoMemoryAndIsRecomputed) {
  Block& from = source(3);
  Block* made = kitchen_.made_of(from, 4, at_);
  const Bytes before = kitchen_->used(at_);
  ASSERT_TRUE(kitchen_->recomputer().discard(*made, at_));
  EXPECT_EQ(kitchen_->used(at_), before - KiB(4));
  EXPECT_TRUE(kitchen_->requests().where(*made).empty());
  EXPECT_EQ(kitchen_->check_invariants(), "");
  EXPECT_EQ(seen(*made, at_), filled(7));
  EXPECT_EQ(kitchen_.followed, 1);
  EXPECT_EQ(kitchen_->stats().recomputed, 1);
  EXPECT_EQ(kitchen_->stats().bytes_written_back, 0);
  EXPECT_EQ(seen(*made, at_), filled(7));
  EXPECT_EQ(kitchen_.followed, 1);
  EXPECT_EQ(kitchen_->stats().bytes_fetched, 0);
  ASSERT_TRUE(kitchen_->recomputer().discard(*made, at_));  // Discards the block a second time.
  EXPECT_EQ(seen(*made, at_), filled(7));
  kitchen_.destroy(made);
}

TEST_F(Recompute, AnInputThatIsTheOnlyCopyIsNoSpareWhereNoNodeBelowHasMemory) {
  ASSERT_TRUE(kitchen_->set_budget(kitchen_.machine().host(), Bytes(1024)).ok());
  ASSERT_TRUE(kitchen_->set_budget(kitchen_.machine().sim(1), Bytes(1024)).ok());
  ASSERT_TRUE(kitchen_->set_budget(at_, KiB(16)).ok());
  Block& from = source(3);
  Block* made = discarded_block(from);
  for (const unsigned char byte : {4, 5, 6}) source(byte);
  const Result<Block*> more = kitchen_.machine().make(at_, filled(7));
  EXPECT_EQ(more.status().code(), Code::out_of_memory);
  EXPECT_EQ(kitchen_->check_invariants(), "");
  EXPECT_EQ(seen(from, at_), filled(3));
  kitchen_.destroy(made);
}

TEST_F(Recompute, EveryNodeReadsItsBytes) {
  Block& from = source(3);
  const NodeId nodes[] = {kitchen_.machine().host(), kitchen_.machine().sim(1)};
  for (const NodeId node : nodes) {
    Block* made = discarded_block(from);
    EXPECT_EQ(seen(*made, node), filled(7));
    kitchen_.destroy(made);
  }
  Block* made = discarded_block(from);
  ASSERT_TRUE(kitchen_->requests().pin(*made, at_).ok());
  EXPECT_EQ(kitchen_->requests().where(*made), std::vector{at_});
  EXPECT_FALSE(kitchen_->recomputer().discard(*made, at_)) << "somebody has pinned it";
  kitchen_->requests().unpin(*made);
  ASSERT_TRUE(kitchen_->recomputer().discard(*made, at_));
  ASSERT_TRUE(kitchen_->requests().hold(*made, kitchen_.machine().host(), false).ok());
  Access access = kitchen_->release_hold(*made, kitchen_.machine().host());
  kitchen_->release(kitchen_.machine().host(), std::span(&access, 1));
  kitchen_.destroy(made);
}

TEST_F(Recompute, AWriterOfItsInputRecomputesItFirst) {
  Block& from = source(3);
  Block* one = discarded_block(from);
  Block* other = discarded_block(from, 5);
  ASSERT_TRUE(kitchen_.machine().write(from, at_, filled(100)).ok());
  EXPECT_EQ(kitchen_.followed, 2);
  EXPECT_EQ(seen(*one, at_), filled(7));
  EXPECT_EQ(seen(*other, at_), filled(8));
  EXPECT_FALSE(kitchen_->recomputer().discard(*one, at_)) << "its bytes cannot be made any more";
  EXPECT_EQ(seen(from, at_), filled(100));
  for (Block* made : {one, other}) kitchen_.destroy(made);
}

TEST_F(Recompute, SoItIsWhereverThatIsWritten) {
  Block& from = source(3);
  const NodeId nodes[] = {kitchen_.machine().host(), kitchen_.machine().sim(1), at_};
  unsigned char now = 3;
  for (const NodeId node : nodes) {
    Block* made = discarded_block(from);
    ASSERT_TRUE(kitchen_->requests().evict(from).ok());
    ASSERT_TRUE(kitchen_->requests().prefetch(from, node).ok());
    ASSERT_TRUE(kitchen_.machine().write(from, node, filled(static_cast<unsigned char>(now + 50))).ok());
    EXPECT_EQ(seen(*made, at_), filled(static_cast<unsigned char>(now + 4)));
    now += 50;
    kitchen_.destroy(made);
  }
}

TEST_F(Recompute, AWriterOfItsInputWaitsWhileItIsDiscarded) {
  Block& from = source(3);
  Block* made = kitchen_.made_of(from, 4, at_);
  std::thread other;
  int early = 0;
  kitchen_->table().set_observer([&](Block& block, NodeId, const void* data) {
    if (&block != made || data != nullptr || other.joinable()) return;
    other = std::thread([&] { EXPECT_TRUE(kitchen_.machine().write(from, at_, filled(9)).ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    early = kitchen_.followed;
  });
  ASSERT_TRUE(kitchen_->recomputer().discard(*made, at_));
  ASSERT_TRUE(other.joinable());
  other.join();
  kitchen_->table().set_observer({});
  EXPECT_EQ(early, 0) << "it has not left yet";
  EXPECT_EQ(kitchen_.followed, 1);
  EXPECT_EQ(seen(*made, at_), filled(7));
  EXPECT_EQ(seen(from, at_), filled(9));
  kitchen_.destroy(made);
}

TEST_F(Recompute, ABlockThatWasWrittenSinceIsNotDiscarded) {
  Block& from = source(3);
  Block* made = kitchen_.made_of(from, 4, at_);
  ASSERT_TRUE(kitchen_.machine().write(*made, at_, filled(9)).ok());
  EXPECT_FALSE(kitchen_->recomputer().discard(*made, at_)) << "it was written itself";
  Block* other = kitchen_.made_of(from, 4, at_);
  ASSERT_TRUE(kitchen_.machine().write(from, at_, filled(9)).ok());
  EXPECT_FALSE(kitchen_->recomputer().discard(*other, at_)) << "what it is made of was written";
  EXPECT_EQ(seen(*other, at_), filled(7));
  for (Block* block : {made, other}) kitchen_.destroy(block);
}

TEST_F(Recompute, InputsOfDiscardedBlocksAreNotDiscarded) {
  Block& from = source(3);
  Block* middle = kitchen_.made_of(from, 4, at_);
  Block* last = kitchen_.made_of(*middle, 5, at_);
  ASSERT_TRUE(kitchen_->recomputer().discard(*last, at_));
  EXPECT_FALSE(kitchen_->recomputer().discard(*middle, at_));
  EXPECT_EQ(seen(*last, at_), filled(12));
  ASSERT_TRUE(kitchen_->recomputer().discard(*middle, at_));
  EXPECT_FALSE(kitchen_->recomputer().discard(*last, at_)) << "what it is made of is not there";
  EXPECT_EQ(seen(*middle, at_), filled(7));
  for (Block* block : {middle, last}) kitchen_.destroy(block);
}

TEST_F(Recompute, ItMayDieWithoutItsBytes) {
  Block& from = source(3);
  Block* made = discarded_block(from);
  kitchen_.destroy(made);
  EXPECT_EQ(kitchen_.followed, 0);
  EXPECT_EQ(kitchen_->check_invariants(), "");  // The operand has an ordinary owner again.
  ASSERT_TRUE(kitchen_.machine().write(from, at_, filled(9)).ok());
  EXPECT_EQ(kitchen_.followed, 0);
}

TEST_F(Recompute, WhatFailsIsTriedAgain) {
  Block& from = source(3);
  Block* made = discarded_block(from);
  kitchen_.before = [] { return Status(Code::out_of_memory, "no room"); };
  EXPECT_EQ(kitchen_.machine().read(*made, at_).status().code(), Code::out_of_memory);
  EXPECT_EQ(kitchen_.machine().write(from, at_, filled(9)).code(), Code::out_of_memory) << "or it were lost";
  EXPECT_EQ(kitchen_->check_invariants(), "");
  kitchen_.before = nullptr;
  EXPECT_EQ(seen(*made, at_), filled(7));
  EXPECT_EQ(seen(from, at_), filled(3));
  kitchen_.destroy(made);
}

TEST_F(Recompute, ACallThatThrowsIsTriedAgain) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Block& from = source(3);
  Block* made = discarded_block(from);
  kitchen_.before = []() -> Status { throw std::runtime_error("no status"); };
  EXPECT_THROW((void)kitchen_.machine().read(*made, at_), std::runtime_error);
  EXPECT_EQ(kitchen_->check_invariants(), "");
  kitchen_.before = nullptr;
  EXPECT_EQ(seen(*made, at_), filled(7));
  kitchen_.destroy(made);
}

TEST_F(Recompute, ABlockThatWouldGetOtherBytesNowIsNotDiscarded) {
  Block& from = source(3);
  Block* made = kitchen_.made_of(from, 4, at_);
  kitchen_.in_force = false;
  EXPECT_FALSE(kitchen_->recomputer().discard(*made, at_));
  EXPECT_EQ(kitchen_->check_invariants(), "");
  EXPECT_EQ(seen(*made, at_), filled(7));
  EXPECT_EQ(kitchen_.followed, 0);
  kitchen_.destroy(made);
}

TEST_F(Recompute, AllBlocksAreRecomputedAtOnce) {
  Block& from = source(3);
  std::vector<Block*> made;
  for (unsigned char number = 1; number <= 5; ++number) made.push_back(discarded_block(from, number));
  kitchen_.before = [] { return Status(Code::out_of_memory, "no room"); };
  EXPECT_EQ(kitchen_->recomputer().recompute_all().code(), Code::out_of_memory);
  kitchen_.before = nullptr;
  EXPECT_TRUE(kitchen_->recomputer().recompute_all().ok());
  EXPECT_EQ(kitchen_.followed, 5);
  EXPECT_EQ(kitchen_->check_invariants(), "");
  for (unsigned char number = 1; number <= 5; ++number) {
    EXPECT_EQ(seen(*made[number - 1U], at_), filled(static_cast<unsigned char>(3 + number)));
    kitchen_.destroy(made[number - 1U]);
  }
  EXPECT_EQ(kitchen_.followed, 5);
  EXPECT_TRUE(kitchen_->recomputer().recompute_all().ok());
}

// The engine recomputes while there is free space: a block pinned later could not leave for the operands and
// the result.
TEST_F(Recompute, AllBlocksAreRecomputedBeforePinsOrBudgetsTakeTheSpace) {
  Block& from = source(3);
  Block* made = discarded_block(from, 1);
  Block& pinned = source(9);
  ASSERT_TRUE(kitchen_->requests().pin(pinned, at_).ok());
  EXPECT_EQ(kitchen_.followed, 1);
  ASSERT_TRUE(kitchen_->recomputer().discard(*made, at_)) << "there is room for it still";
  ASSERT_TRUE(kitchen_->set_budget(at_, Bytes(4 * 4096)).ok());
  EXPECT_EQ(kitchen_.followed, 2);
  ASSERT_TRUE(kitchen_->recomputer().discard(*made, at_));
  ASSERT_TRUE(kitchen_->set_budget(at_, Bytes(5 * 4096)).ok());
  EXPECT_EQ(kitchen_.followed, 2) << "more room is no reason";
  kitchen_->requests().unpin(pinned);
  EXPECT_EQ(seen(*made, at_), filled(4));
  kitchen_.destroy(made);
}

TEST_F(Recompute, ABlockWhoseRecomputeWouldNotFitBesidePinsIsNotDiscarded) {
  ASSERT_TRUE(kitchen_->set_budget(at_, Bytes(4 * 4096)).ok());
  Block& from = source(3);
  Block* made = kitchen_.made_of(from, 1, at_);
  std::vector<Block*> pinned;
  for (int i = 0; i < 2; ++i) {
    pinned.push_back(&source(9));
    ASSERT_TRUE(kitchen_->requests().pin(*pinned.back(), at_).ok());
  }
  ASSERT_TRUE(kitchen_->requests().pin(*pinned[0], at_).ok()) << "twice is not twice the room";
  EXPECT_TRUE(kitchen_->recomputer().discard(*made, at_)) << "operand, result, and two that are pinned";
  EXPECT_EQ(seen(*made, at_), filled(4));
  ASSERT_TRUE(kitchen_->set_budget(at_, Bytes(3 * 4096)).ok());
  EXPECT_EQ(seen(*made, at_), filled(4));
  EXPECT_FALSE(kitchen_->recomputer().discard(*made, at_));
  kitchen_->requests().unpin(*pinned[0]);
  EXPECT_FALSE(kitchen_->recomputer().discard(*made, at_)) << "it is pinned once more";
  kitchen_->requests().unpin(*pinned[0]);
  EXPECT_EQ(seen(*made, at_), filled(4));
  EXPECT_TRUE(kitchen_->recomputer().discard(*made, at_));
  EXPECT_EQ(seen(*made, at_), filled(4));
  kitchen_.destroy(made);
  kitchen_.destroy(pinned[1]);  // The destroyed block takes its pin along.
  std::erase(sources_, pinned[1]);
  Block* again = kitchen_.made_of(from, 2, at_);
  ASSERT_TRUE(kitchen_->set_budget(at_, Bytes(2 * 4096)).ok());
  EXPECT_TRUE(kitchen_->recomputer().discard(*again, at_)) << "nothing is pinned any more";
  kitchen_.destroy(again);
}

TEST_F(Recompute, ItsInputMayBeEvictedMeanwhile) {
  Block& from = source(3);
  Block* made = discarded_block(from);
  ASSERT_TRUE(kitchen_->requests().evict(from).ok());
  EXPECT_EQ(kitchen_->check_invariants(), "");
  EXPECT_EQ(seen(*made, at_), filled(7));
  kitchen_.destroy(made);
}

TEST_F(Recompute, AHintDoesNothing) {
  Block& from = source(3);
  Block* made = discarded_block(from);
  EXPECT_TRUE(kitchen_->requests().prefetch(*made, at_).ok());
  EXPECT_TRUE(kitchen_->requests().evict(*made).ok());
  EXPECT_TRUE(kitchen_->requests().write_back(*made).ok());
  EXPECT_FALSE(kitchen_->resize_unwritten(*made, KiB(8)).ok());
  EXPECT_TRUE(kitchen_->requests().where(*made).empty());
  EXPECT_EQ(seen(*made, at_), filled(7));
  kitchen_.destroy(made);
}

TEST_F(Recompute, OtherThreadsThatNeedTheBlockWaitForIt) {
  for (int round = 0; round < 200; ++round) {
    Block& from = source(static_cast<unsigned char>(round));
    Block* made = discarded_block(from);
    const int before = kitchen_.followed;
    std::thread other([&] { EXPECT_EQ(seen(*made, at_), filled(static_cast<unsigned char>(round + 4))); });
    EXPECT_EQ(seen(*made, at_), filled(static_cast<unsigned char>(round + 4)));
    other.join();
    EXPECT_EQ(kitchen_.followed, before + 1);
    kitchen_.destroy(made);
    kitchen_.destroy(&from);
    sources_.clear();
  }
}

TEST_F(Recompute, ItMayDieWhileAnotherThreadWritesItsInput) {
  for (int round = 0; round < 200; ++round) {
    Block& from = source(1);
    Block* made = discarded_block(from);
    std::thread other([&] { kitchen_->destroy(made); });
    EXPECT_TRUE(kitchen_.machine().write(from, at_, filled(9)).ok());
    other.join();
    EXPECT_EQ(kitchen_->check_invariants(), "");
    kitchen_.destroy(&from);
    sources_.clear();
  }
}

TEST_F(Recompute, ItsDestructionWaitsUntilItIsRecomputed) {
  Block& from = source(1);
  Block* made = discarded_block(from);
  std::atomic<bool> gone{false};
  std::thread other;
  kitchen_.before = [&]() -> Status {
    other = std::thread([&] {
      kitchen_->destroy(made);
      gone = true;
    });
    // Long enough for a thread that does not wait to end.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(gone);
    return {};
  };
  EXPECT_TRUE(kitchen_.machine().write(from, at_, filled(9)).ok());
  other.join();
  EXPECT_TRUE(gone);
  kitchen_.before = nullptr;
}

// There is no node below: the victim search looks at the block, and it stays.
TEST(RecomputeBelowNothing, ItMayDieWhileItsInputCannotLeave) {
  Kitchen kitchen({.budget = KiB(64), .host_budget = Bytes(1024)});
  const NodeId at = kitchen.machine().sim();
  Block* const from = kitchen.machine().make(at, filled(3)).value();
  Block* const made = kitchen.made_of(*from, 4, at);
  ASSERT_TRUE(kitchen->recomputer().discard(*made, at));
  std::function<void()> meanwhile = [&] { kitchen.destroy(made); };
  {
    const AtPoints points([&](const char* name) {
      if (std::string_view(name) == "victim" && meanwhile) std::exchange(meanwhile, nullptr)();
    });
    EXPECT_EQ(kitchen.machine().make(at, filled(1, 62 << 10)).status().code(), Code::out_of_memory);
  }
  EXPECT_FALSE(meanwhile) << "nothing was to leave";
  EXPECT_EQ(kitchen->check_invariants(), "");  // The operand has an ordinary owner again.
  kitchen.destroy(from);
}

TEST(RecomputePlanned, ARecomputeIsNoStepOfTheProgram) {
  Kitchen kitchen({.budget = KiB(64)});
  Machine& machine = kitchen.machine();
  const NodeId at = machine.sim();
  std::vector<Block*> weights;
  for (unsigned char i = 0; i < 20; ++i) weights.push_back(machine.make(at, filled(i)).value());
  const auto round = [&](bool discards) {
    Block* const made = kitchen.made_of(*weights.front(), 4, at);
    EXPECT_EQ(discards, discards && kitchen->recomputer().discard(*made, at));
    for (Block* weight : weights) EXPECT_TRUE(machine.read(*weight, at).ok());
    EXPECT_EQ(machine.read(*made, at).value(), filled(4));
    kitchen.destroy(made);
  };
  for (int i = 0; i < 200 && kitchen->plans().planning().periods == 0; ++i) round(false);
  const PlanningStats before = kitchen->plans().planning();
  ASSERT_GT(before.periods, 0);
  for (int i = 0; i < 100; ++i) round(true);
  EXPECT_GE(kitchen.followed, 100);
  EXPECT_EQ(kitchen->plans().planning().divergences, before.divergences);
  EXPECT_GT(kitchen->plans().planning().periods, before.periods + 50);
  for (Block* weight : weights) kitchen.destroy(weight);
}

}  // namespace
}  // namespace innkeeper::test
