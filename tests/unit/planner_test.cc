// A planner without an engine: a program is followed, left and found again.
#include "plan/planner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace innkeeper::plan {
namespace {

constexpr NodeId kCard{0};

Touch read(Name name, int64_t kib = 1) { return {name, KiB(kib), false}; }

// A planner with blocks that are only names, and what it orders.
class Follower {
 public:
  explicit Follower(Bytes room) : Follower([room](NodeId) { return room; }) {}
  explicit Follower(std::function<Bytes(NodeId)> room)
      : planner(std::move(room), [](NodeId) { return Planner::AboutNode{"a card"}; }) {}

  Name meet() {
    fake_ += 64;
    return planner.meet(reinterpret_cast<Block*>(fake_));
  }
  int op(std::vector<Touch> touches) {
    planner.ended(kCard, touches);
    int orders = 0;
    for (Order order; planner.next(order);) ++orders;
    return orders;
  }

  Planner planner;

 private:
  uintptr_t fake_ = 0;
};

TEST(Planner, FollowsLeavesAndComesBack) {
  Follower it(KiB(250));
  std::vector<Name> weights;
  for (int i = 0; i < 300; ++i) weights.push_back(it.meet());
  const auto round = [&] {
    int orders = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const Name fresh = it.meet();
      orders += it.op({read(weights[i], 1), {fresh, Bytes(512 + 64 * static_cast<int64_t>(i % 7)), true}});
      it.planner.forget(fresh);
    }
    return orders;
  };
  EXPECT_EQ(round(), 0);
  EXPECT_EQ(round(), 0);
  EXPECT_TRUE(it.planner.follows());
  EXPECT_GT(round(), 0);
  const int orders = round();
  EXPECT_GT(orders, 0);
  EXPECT_EQ(round(), orders);
  EXPECT_EQ(it.planner.rounds(), 3);

  // What it moves: weights, which are read alone and so have copies, and what each round makes, which dies.
  std::vector<plan::Moved> moved = it.planner.moved();
  Bytes arriving{0};
  for (const plan::Moved& each : moved) {
    EXPECT_NE(each.block, nullptr) << "a passing one is forgotten at once";
    EXPECT_EQ(each.leaving, Bytes(0));
    arriving += each.arriving;
  }
  EXPECT_EQ(arriving, it.planner.cost().arriving);

  // One line more in between, which makes a block.
  it.op({{it.meet(), KiB(3), true}});
  EXPECT_FALSE(it.planner.follows());
  EXPECT_EQ(it.planner.divergences(), 1);
  const int rest = round();
  EXPECT_TRUE(it.planner.follows()) << "taken up again within the round";
  EXPECT_GT(rest, 0);
  EXPECT_LE(rest, orders);
  EXPECT_EQ(round(), orders);
}

TEST(Planner, TellsWhatARoundCopiesOfWhom) {
  Bytes room = KiB(150);
  Follower it([&room](NodeId) { return room; });
  std::vector<Name> weights;
  for (int i = 0; i < 200; ++i) weights.push_back(it.meet());
  const auto round = [&] {
    for (const Name weight : weights) {
      it.op({{weight, KiB(1), true}});
      it.op({read(weight, 1)});
    }
  };
  EXPECT_TRUE(it.planner.moved().empty());
  for (int i = 0; i < 4; ++i) round();
  ASSERT_EQ(it.planner.rounds(), 2);
  std::vector<plan::Moved> moved = it.planner.moved();
  ASSERT_GT(moved.size(), 40u);
  for (const plan::Moved& each : moved) {
    EXPECT_NE(each.block, nullptr);
    EXPECT_EQ(each.arriving, KiB(1));
    EXPECT_EQ(each.leaving, KiB(1)) << "it is written, though what came last was a read";
  }

  room = KiB(100);
  round();
  EXPECT_TRUE(it.planner.moved().empty()) << "nobody has followed the new schedule yet";
  round();
  const size_t more = it.planner.moved().size();
  EXPECT_GT(more, moved.size());

  for (const Name weight : weights) it.planner.forget(weight);
  EXPECT_TRUE(it.planner.moved().empty()) << "what has died does not move, and no round has made it";
}

TEST(Planner, OrdersNothingWhereAllFits) {
  Follower it(KiB(100));
  std::vector<Name> weights;
  for (int i = 0; i < 40; ++i) weights.push_back(it.meet());
  for (int round = 0; round < 10; ++round)
    for (const Name weight : weights) EXPECT_EQ(it.op({read(weight)}), 0);
  EXPECT_FALSE(it.planner.follows());
}

TEST(Planner, MakesRoomForWhatItCouldNotSee) {
  Follower it(KiB(32));
  std::vector<Name> weights;
  for (int i = 0; i < 40; ++i) weights.push_back(it.meet());
  const auto round = [&](int64_t unplanned) {
    int orders = 0;
    for (int i = 0; i < 7; ++i) {  // short rounds are scheduled several at a time
      for (const Name weight : weights) {
        orders += it.op({read(weight)});
        it.planner.unplanned(kCard, Bytes(unplanned));
      }
    }
    return orders;
  };
  for (int i = 0; i < 4; ++i) round(0);
  const int before = round(0);
  round(512);
  EXPECT_GT(round(0), before) << "a kernel's scratch memory is room that blocks do not have";
}

// A loop whose state is one block at first and another from then on: what it makes is not the same each time.
TEST(Planner, ALoopThatGoesOnWithAnotherBlockIsNoRoundYet) {
  Follower it(KiB(30));
  std::vector<Name> weights;
  for (int i = 0; i < 40; ++i) weights.push_back(it.meet());
  Name state = it.meet();
  for (int round = 0; round < 20; ++round) {
    it.op({read(state), {weights[0], KiB(2), true}});
    for (size_t i = 1; i < 39; ++i) it.op({read(weights[i]), {weights[i + 1], KiB(2), true}});
    if (round == 0) state = it.meet();
    it.op({read(weights[39]), {state, KiB(2), true}});
  }
  EXPECT_TRUE(it.planner.follows());
}

TEST(Planner, AnotherRoomIsAnotherSchedule) {
  Bytes room = KiB(6);
  Follower it([&room](NodeId) { return room; });
  std::vector<Name> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(it.meet());
  const auto rounds = [&](int count) {
    int orders = 0;
    for (int round = 0; round < count; ++round)
      for (const Name block : blocks) orders += it.op({read(block, 65)});
    return orders;
  };
  room = KiB(65 * 90);
  rounds(5);
  EXPECT_GT(rounds(3), 0);
  EXPECT_EQ(it.planner.cost().bound, KiB(65 * 10));
  EXPECT_EQ(it.planner.cost().shortage, KiB(65 * 10));
  room = KiB(65 * 100);
  rounds(6);
  EXPECT_EQ(rounds(6), 0) << "all of it fits";
  EXPECT_EQ(it.planner.cost().bound, Bytes(0));
  EXPECT_EQ(it.planner.cost().shortage, Bytes(0));
  room = KiB(65 * 50);
  rounds(12);
  EXPECT_GT(rounds(3), 0);
  it.planner.interrupt();
  EXPECT_FALSE(it.planner.follows());
  EXPECT_GT(rounds(6), 0) << "it is taken up again";
}

TEST(Planner, AMillionBlocksLeaveNothingBehind) {
  Follower it(KiB(1));
  const Name elder = it.meet();
  for (int64_t i = 0; i < 1'000'000; ++i) {
    const Name name = it.meet();
    it.op({{name, Bytes(64 * (1 + i * 7919 % 1013)), true}});
    it.planner.forget(name);
  }
  it.planner.forget(elder);
  EXPECT_FALSE(it.planner.follows());
}

}  // namespace
}  // namespace innkeeper::plan
