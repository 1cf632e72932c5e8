// Forces events between two steps of the engine; removing lines that no test missed found these cases.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "support/at_points.h"
#include "support/machine.h"
#include "support/meddling_policy.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

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
  EXPECT_TRUE(machine->table().has_replica(*first, machine.sim()));
  EXPECT_FALSE(machine->table().has_replica(*second, machine.sim())) << "the other one left in its place";
  first->replica(machine.sim()).word.remove_pin(false);
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : {first, second, third.value()}) machine->destroy(block);
}

TEST(Races, MemoryOfAReleasedEscapedReplicaIsFreeAgain) {
  Machine machine;
  bool held = true;
  machine->set_observers({.escapes = [&](Block&, NodeId) { return held; }});
  Block* block = machine.make(machine.sim(), pattern(3000, 1)).value();
  Access access{.block = block};
  ASSERT_TRUE(machine->acquire(machine.sim(), std::span(&access, 1)).ok());
  machine->keep_escaped(machine.sim(), access);
  EXPECT_LT(machine->unpinned_budget(machine.sim()), machine->budget(machine.sim()));
  EXPECT_EQ(machine->stats().escaped, 1);
  held = false;
  EXPECT_EQ(machine->stats().escaped, 0);
  EXPECT_EQ(machine->stats().nodes.at("sim:0").pinned, 0);
  EXPECT_EQ(machine->unpinned_budget(machine.sim()), machine->budget(machine.sim()));
  EXPECT_TRUE(machine->requests().evict(*block).ok());
  machine->destroy(block);
}

// A leaving replica is on no list any more, but its bytes are not free yet.
TEST(Races, ARequestWaitsForTheMemoryThatAnotherThreadIsAboutToFree) {
  Machine machine({.budget = Bytes(kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  const NodeId node = machine.sim();
  Block* block = machine.make(node, pattern(kSize, 1)).value();
  std::mutex mutex;
  std::condition_variable changed;
  bool waits = false;
  bool done = false;
  Status asked;
  const std::thread::id self = std::this_thread::get_id();
  std::thread other;
  {
    const AtPoints points([&](const char* name) {
      if (std::this_thread::get_id() == self && std::strcmp(name, "dropped") == 0 && !other.joinable()) {
        other = std::thread([&] {
          asked = machine->device(node).allocate(Bytes(kSize)).status();
          const std::lock_guard lock(mutex);
          done = true;
          changed.notify_all();
        });
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return waits || done; });
      } else if (std::strcmp(name, "wait") == 0) {
        const std::lock_guard lock(mutex);
        waits = true;
        changed.notify_all();
      }
    });
    EXPECT_TRUE(machine->requests().evict(*block).ok());
    ASSERT_TRUE(other.joinable());
    other.join();
  }
  EXPECT_TRUE(waits);
  EXPECT_TRUE(asked.ok()) << asked.message();
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

// An operator holds the space that a prefetch needs, and acquires the block that is being fetched.
TEST(Races, AThreadWithoutSpaceReleasesTheBlockThatItFetches) {
  Machine machine({.budget = Bytes(kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  const NodeId node = machine.sim();
  Block* wanted = machine.make(node, pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().evict(*wanted).ok());
  Block* holds = machine.make(node, pattern(kSize, 2)).value();
  std::atomic<bool> waits = false;
  Status fetched;
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait") != 0) return;
      waits = true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
    Access access{.block = holds};
    std::thread other;
    {
      const NodeAdmission scope = machine.engine().admit(node, Bytes(0));
      ASSERT_TRUE(machine->acquire(node, std::span(&access, 1)).ok());
      other = std::thread([&] { fetched = machine->requests().prefetch(*wanted, node); });
      while (!waits) std::this_thread::yield();
      EXPECT_TRUE(machine->requests().evict(*wanted).ok()) << "waits until nobody moves the block";
      machine->release(node, std::span(&access, 1));
    }
    other.join();
  }
  EXPECT_TRUE(fetched.ok()) << fetched.message();
  EXPECT_EQ(machine.read(*wanted, node).value(), pattern(kSize, 1));
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : {wanted, holds}) machine->destroy(block);
}

TEST(Races, APeerThatFillsUpMeanwhileEvictsNothingForAnother) {
  FaultPlan faults;
  Machine machine({.accelerators = 2, .budget = Bytes(4 * kSize), .faults = &faults});
  const Watchdog watchdog(std::chrono::seconds(30));
  std::vector<Block*> ours;
  for (uint64_t i = 0; i < 2; ++i) ours.push_back(machine.make(machine.sim(0), pattern(kSize, i)).value());
  std::vector<Block*> theirs;
  bool armed = true;
  faults.set_watcher([&] {
    // The eviction first asks the peer for memory: the engine has found that the peer has plenty.
    if (!std::exchange(armed, false)) return;
    for (uint64_t i = 2; i < 6; ++i) {
      theirs.push_back(machine.make(machine.sim(1), pattern(kSize, i)).value());
    }
  });
  ASSERT_TRUE(machine->set_budget(machine.sim(0), Bytes(kSize)).ok());
  faults.set_watcher(nullptr);
  ASSERT_EQ(theirs.size(), 4u);
  for (Block* block : theirs)
    EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.sim(1)});
  EXPECT_EQ(machine->requests().where(*ours[0]), std::vector<NodeId>{machine.host()});
  EXPECT_EQ(machine->stats().bytes_between, 0);
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : ours) machine->destroy(block);
  for (Block* block : theirs) machine->destroy(block);
}

// Neither an allocation nor a release takes the engine's lock. Between an allocation's charge and its memory
// the two figures differ, and a check at that moment must not report it.
TEST(Races, InvariantsHoldWhileMemoryComesAndGoes) {
  Machine machine({.budget = MiB(4)});
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (const NodeId node : {machine.host(), machine.sim()}) {
    others.emplace_back([&, node] {
      while (!stop) EXPECT_TRUE(machine->device(node).allocate(Bytes(4096)).ok());
    });
  }
  for (int look = 0; look < 5000; ++look) EXPECT_EQ(machine->check_invariants(), "");
  stop = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(machine->check_invariants(), "");
}

// The check still reports a charge whose memory never comes.
TEST(Races, ADifferenceThatStaysIsReported) {
  Machine machine({.budget = MiB(4)});
  ASSERT_TRUE(machine->evictor().charge(machine.sim(), Bytes(4096)).ok());
  EXPECT_NE(machine->check_invariants().find("I7"), std::string::npos);
  machine->evictor().uncharge(machine.sim(), Bytes(4096));
  EXPECT_EQ(machine->check_invariants(), "");
}

// A check during a move reports nothing: a half-done move is not broken.
TEST(Races, InvariantsHoldInTheMiddleOfAMove) {
  FaultPlan faults;
  Machine machine({.accelerators = 2, .budget = KiB(8), .faults = &faults});
  int looks = 0;
  faults.set_watcher([&] {
    ++looks;
    EXPECT_EQ(machine->check_invariants(), "");
  });
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 4; ++i) blocks.push_back(machine.make(machine.sim(), pattern(3000, i)).value());
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 4; ++i) {
      const NodeId node = machine.sim((i + static_cast<uint64_t>(round)) % 2);
      EXPECT_EQ(machine.read(*blocks[i], node).value(), pattern(3000, i));
      EXPECT_TRUE(machine.write(*blocks[i], node, pattern(3000, i)).ok());
    }
    ASSERT_TRUE(machine->evictor().evict_all().ok());
  }
  EXPECT_GT(looks, 50);
  faults.set_watcher(nullptr);
  for (Block* block : blocks) machine->destroy(block);
}

// Each thread waits for the other while the other may free space, and frees none during the wait.
TEST(Races, TwoWriteBacksWithoutFreeSpaceBothEnd) {
  const Watchdog watchdog(std::chrono::seconds(60));
  Machine machine({.host_budget = KiB(8)});
  // There is no disk, so the block cannot leave.
  Block* full = machine.make(machine.host(), pattern(6000, 1)).value();
  std::vector<Block*> waiting;
  for (uint64_t i = 0; i < 2; ++i) {
    waiting.push_back(machine.make(machine.sim(), pattern(4000, i)).value());
  }
  const auto try_often = [&](Block* block) {
    for (int round = 0; round < 2000; ++round) {
      EXPECT_EQ(machine->requests().write_back(*block).code(), Code::out_of_memory);
    }
  };
  std::thread other(try_often, waiting[1]);
  try_often(waiting[0]);
  other.join();
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(full);
  for (Block* block : waiting) machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
