// A result that dies before any thread searches the node takes no lock, and a search finds those that live.
#include "residency/block/nursery.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "support/at_points.h"
#include "support/machine.h"
#include "support/meddling_policy.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

constexpr size_t kNurserySize = 256;
constexpr std::chrono::milliseconds kNotYet{50};

Block* born(Machine& machine, NodeId node, size_t size = kNurserySize) {
  return machine.make(node, pattern(size, 1)).value();
}

bool is_listed(const Block& block, NodeId node) { return block.replica(node).listed; }

void destroy_all(Machine& machine, const std::vector<Block*>& blocks) {
  for (Block* block : blocks) machine->destroy(block);
  EXPECT_TRUE(machine->synchronize().ok());  // Frees parked host memory.
  EXPECT_EQ(machine->table().block_count(), 0U);
  EXPECT_EQ(machine->check_invariants(), "");
  for (const auto& [name, row] : machine->stats().nodes) {
    EXPECT_EQ(row.replicas, 0) << name;
    EXPECT_EQ(row.resident, 0) << name;
  }
}

// ---------------------------------------------------------------- the table

class NurseryTable : public testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < Nursery::kPlaces + 1; ++i) blocks_.push_back(machine_->create(Bytes(0)));
  }
  void TearDown() override { destroy_all(machine_, blocks_); }

  // Gives places to the blocks from `first` on while there are free ones; returns their number.
  size_t add_from(size_t first) {
    size_t added = 0;
    for (size_t i = first; i < blocks_.size() && table_.add(*blocks_[i]); ++i) ++added;
    return added;
  }
  std::set<Block*> take_all() {
    const size_t count = table_.take_all(taken_);
    return {taken_.begin(), taken_.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  Machine machine_;
  std::vector<Block*> blocks_;
  Nursery table_;
  std::array<Block*, Nursery::kPlaces> taken_{};
};

TEST_F(NurseryTable, HasSoManyPlacesAndGivesEachBlockOutOnce) {
  ASSERT_EQ(add_from(0), Nursery::kPlaces);
  EXPECT_FALSE(table_.take(*blocks_.back())) << "it was given no place";
  EXPECT_TRUE(table_.take(*blocks_[5]));
  EXPECT_FALSE(table_.take(*blocks_[5]));
  EXPECT_TRUE(table_.add(*blocks_.back())) << "there is a place again";
  std::set<Block*> all(blocks_.begin(), blocks_.end());
  all.erase(blocks_[5]);
  EXPECT_EQ(take_all(), all);
  EXPECT_TRUE(take_all().empty());
  EXPECT_FALSE(table_.begin_death(*blocks_[0], machine_.host())) << "others have taken it";
  EXPECT_EQ(add_from(0), Nursery::kPlaces);
}

TEST_F(NurseryTable, ADyingBlockIsAMarkUntilItsBytesAreFree) {
  ASSERT_TRUE(table_.add(*blocks_[0]));
  ASSERT_TRUE(table_.begin_death(*blocks_[0], machine_.host()));
  EXPECT_FALSE(table_.take(*blocks_[0]));
  EXPECT_FALSE(table_.begin_death(*blocks_[0], machine_.host()));
  EXPECT_TRUE(take_all().empty());
  EXPECT_TRUE(table_.any_dying(machine_.host()));
  EXPECT_FALSE(table_.any_dying(machine_.sim()));
  EXPECT_EQ(add_from(1), Nursery::kPlaces - 1) << "its place is not free yet";
  EXPECT_EQ(take_all().size(), Nursery::kPlaces - 1);
  table_.end_death(*blocks_[0]);
  EXPECT_FALSE(table_.any_dying(machine_.host()));
  EXPECT_EQ(add_from(1), Nursery::kPlaces);
}

// ---------------------------------------------------------------- births and deaths

TEST(Nursery, ABirthAndADeathDoNotWaitForTheLock) {
  Machine machine({.policy = make_meddling_policy});
  Block* const first = born(machine, machine.sim());
  std::future<void> others;
  std::future_status went_on{};
  MeddlingPolicy::meddle = [&] {
    others = std::async(std::launch::async, [&] {
      for (int i = 0; i < 300; ++i) machine->destroy(born(machine, machine.sim()));
    });
    went_on = others.wait_for(std::chrono::seconds(20));
  };
  (void)machine->stats();
  ASSERT_TRUE(others.valid()) << "the engine asks for the key of what it takes in";
  EXPECT_EQ(went_on, std::future_status::ready);
  others.get();
  destroy_all(machine, {first});
}

TEST(Nursery, AResultWithoutAPlaceDrainsTheNursery) {
  Machine machine;
  const NodeId node = machine.host();
  std::vector<Block*> blocks;
  for (size_t i = 0; i < Nursery::kPlaces; ++i) blocks.push_back(born(machine, node));
  for (const Block* block : blocks) EXPECT_FALSE(is_listed(*block, node));
  blocks.push_back(born(machine, node));
  for (const Block* block : blocks) EXPECT_TRUE(is_listed(*block, node));
  blocks.push_back(born(machine, node));
  EXPECT_FALSE(is_listed(*blocks.back(), node)) << "there are places again";
  EXPECT_EQ(machine->check_invariants(), "");
  destroy_all(machine, blocks);
}

TEST(Nursery, AReaderOfTheBooksFindsThem) {
  Machine machine;
  const NodeId node = machine.sim();
  Block* const first = born(machine, node);
  EXPECT_EQ(machine->stats().nodes.at("sim:0").replicas, static_cast<int64_t>(kNurserySize));
  EXPECT_TRUE(is_listed(*first, node));
  Block* const second = born(machine, node);
  EXPECT_FALSE(is_listed(*second, node));
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_TRUE(is_listed(*second, node));
  EXPECT_EQ(machine->stats().nodes.at("sim:0").replicas, static_cast<int64_t>(2 * kNurserySize));
  destroy_all(machine, {first, second});
}

TEST(Nursery, TheMemoryObserverLearnsOfTheirEnd) {
  Machine machine;
  const NodeId node = machine.sim();
  Block* told = nullptr;
  bool absent = false;
  Bytes used{0};
  machine->set_observers({.memory = [&](Block& block, NodeId at, void* data) {
    if (at != node || data != nullptr) return;
    told = &block;
    absent = block.replica(node).word.state() == ReplicaState::absent;
    used = machine->used(node);
  }});
  Block* const block = born(machine, node);
  machine->destroy(block);
  EXPECT_EQ(told, block);
  EXPECT_TRUE(absent);
  EXPECT_EQ(used, round_up(Bytes(kNurserySize))) << "told before the memory goes";
  EXPECT_EQ(machine->used(node), Bytes(0));
}

// ---------------------------------------------------------------- free space

TEST(Nursery, AThreadThatNeedsSpaceEvictsThem) {
  Machine machine({.budget = KiB(64)});
  const NodeId node = machine.sim();
  std::vector<Block*> blocks;
  for (int i = 0; i < 7; ++i) blocks.push_back(born(machine, node, 4096));
  EXPECT_FALSE(is_listed(*blocks[0], node));
  {
    Result<Memory> memory = machine->device(node).allocate(KiB(48));
    EXPECT_TRUE(memory.ok()) << memory.status().message();
  }
  EXPECT_GE(machine->stats().evictions, 3);
  for (Block* block : blocks) EXPECT_TRUE(machine.read(*block, node).value() == pattern(4096, 1));
  destroy_all(machine, blocks);
}

TEST(Nursery, AllMayBeEvictedIfABudgetShrinksOrTheDeviceIsFull) {
  Machine machine({.budget = KiB(64)});
  const NodeId node = machine.sim();
  std::vector<Block*> blocks{born(machine, node, 4096), born(machine, node, 4096)};
  const Status smaller = machine->set_budget(node, KiB(6));
  EXPECT_TRUE(smaller.ok()) << smaller.message();
  EXPECT_EQ(machine->used(node), KiB(4));
  ASSERT_TRUE(machine->set_budget(node, KiB(64)).ok());
  blocks.push_back(born(machine, node, 4096));
  ASSERT_FALSE(is_listed(*blocks.back(), node));
  const Status relieved = machine->evictor().relieve(node, KiB(8));
  EXPECT_TRUE(relieved.ok()) << relieved.message();
  EXPECT_EQ(machine->used(node), Bytes(0));
  blocks.push_back(born(machine, node, 4096));
  ASSERT_FALSE(is_listed(*blocks.back(), node));
  ASSERT_TRUE(machine->evictor().evict_all().ok());
  EXPECT_EQ(machine->used(node), Bytes(0));
  destroy_all(machine, blocks);
}

TEST(Nursery, AnOutOfMemoryErrorCountsThem) {
  Machine machine({.budget = KiB(64)});
  Block* const block = born(machine, machine.sim(), 4096);
  const Status refused = machine->device(machine.sim()).allocate(KiB(65)).status();
  EXPECT_NE(refused.message().find("0 B by kernels"), std::string::npos) << refused.message();
  destroy_all(machine, {block});
}

TEST(Nursery, WhereSpaceIsShortEachResultIsListedAtOnce) {
  Machine machine({.budget = KiB(64)});
  const NodeId node = machine.sim();
  Block* const large = born(machine, node, 40 * 1024);  // More than half of the budget.
  Block* const block = born(machine, node);
  EXPECT_TRUE(is_listed(*block, node));
  Block* const elsewhere = born(machine, machine.host());
  EXPECT_FALSE(is_listed(*elsewhere, machine.host()));
  destroy_all(machine, {large, block, elsewhere});
}

// Otherwise the late operator could end unseen, and the engine would report its space as unowned.
TEST(Nursery, AResultBornDuringASearchForSpaceWaitsForItsEnd) {
  Machine machine({.budget = KiB(64), .policy = make_meddling_policy});
  const NodeId node = machine.sim();
  Block* const first = born(machine, node, 4096);
  Block* const late = machine->create(Bytes(kNurserySize));
  Memory memory = machine->device(node).allocate(Bytes(kNurserySize)).value();
  std::future<void> birth;
  std::future_status went_on{};
  MeddlingPolicy::meddle = [&] {
    birth = std::async(std::launch::async, [&] { machine->adopt(*late, node, std::move(memory)); });
    went_on = birth.wait_for(kNotYet);
  };
  EXPECT_TRUE(machine->device(node).allocate(KiB(62)).ok());
  ASSERT_TRUE(birth.valid());
  EXPECT_EQ(went_on, std::future_status::timeout);
  birth.get();
  EXPECT_TRUE(is_listed(*late, node));
  Access access{.block = late, .pinned = true};
  machine->release(node, std::span(&access, 1));
  destroy_all(machine, {first, late});
}

// A searching thread finds the block gone, but its bytes not yet free.
TEST(Nursery, ARequestWaitsForTheMemoryOfABlockThatEnds) {
  Machine machine({.budget = KiB(64)});
  const Watchdog watchdog(std::chrono::seconds(30));
  const NodeId node = machine.sim();
  std::atomic<bool> waits = false;
  Status asked;
  std::thread other;
  machine->set_observers({.memory = [&](Block&, NodeId, void* data) {
    if (data != nullptr) return;
    std::atomic<bool> over = false;
    other = std::thread([&] {
      asked = machine->device(node).allocate(KiB(56)).status();
      over = true;
    });
    while (!waits && !over) std::this_thread::yield();
  }});
  Block* const block = born(machine, node, 24 * 1024);
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait") == 0) waits = true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
    machine->destroy(block);
    other.join();
  }
  EXPECT_TRUE(waits);
  EXPECT_TRUE(asked.ok()) << asked.message();
  EXPECT_EQ(machine->check_invariants(), "");
}

// ---------------------------------------------------------------- operations on one block

struct Kept {
  const char* name;
  void (*keep)(Machine& machine, Block& block, NodeId node);
};

class NewResultKept : public testing::TestWithParam<Kept> {};

// The block's end must find its records.
TEST_P(NewResultKept, IsListedFirst) {
  Machine machine({.accelerators = 2, .disk_budget = MiB(1)});
  machine->set_observers({.escapes = [](Block&, NodeId) { return true; }});
  const NodeId node = machine.sim();
  for (int round = 0; round < 2; ++round) {
    Block* const other = born(machine, node);
    Block* const block = born(machine, node);
    ASSERT_FALSE(is_listed(*block, node));
    GetParam().keep(machine, *block, node);
    EXPECT_EQ(machine->check_invariants(), "");
    machine->destroy(block);
    const Stats stats = machine->stats();
    EXPECT_EQ(stats.escaped, 0);
    EXPECT_EQ(stats.nodes.at("sim:0").pinned, 0);
    EXPECT_EQ(stats.nodes.at("sim:0").replicas, static_cast<int64_t>(kNurserySize));
    destroy_all(machine, {other});
  }
}

const Kept kKept[] = {
    {"Pinned",
     [](Machine& machine, Block& block, NodeId node) {
       ASSERT_TRUE(machine->requests().pin(block, node).ok());
       EXPECT_TRUE(is_listed(block, node));
       EXPECT_EQ(machine->unpinned_budget(node), machine->budget(node) - Bytes(kNurserySize));
     }},
    {"Held",
     [](Machine& machine, Block& block, NodeId node) {
       ASSERT_TRUE(machine->requests().hold(block, node, true).ok());
       EXPECT_TRUE(is_listed(block, node));
     }},
    {"Escaped",
     [](Machine& machine, Block& block, NodeId node) {
       Access access{.block = &block};
       ASSERT_TRUE(machine->acquire(node, std::span(&access, 1)).ok());
       machine->keep_escaped(node, access);
       EXPECT_TRUE(is_listed(block, node));
       EXPECT_EQ(machine->unpinned_budget(node), machine->budget(node) - Bytes(kNurserySize));
     }},
    {"Surrendered",
     [](Machine& machine, Block& block, NodeId node) {
       EXPECT_TRUE(machine->detach(block, node));
       EXPECT_FALSE(is_listed(block, node));
     }},
    {"Resized",
     [](Machine& machine, Block& block, NodeId node) {
       Access access{.block = &block, .write = true};
       ASSERT_TRUE(machine->acquire(node, std::span(&access, 1)).ok());
       machine->replace(block, node, machine->device(node).allocate(KiB(1)).value(), KiB(1));
       EXPECT_TRUE(is_listed(block, node));
       EXPECT_EQ(machine->stats().nodes.at("sim:0").replicas, static_cast<int64_t>(kNurserySize) + 1024);
       machine->release(node, std::span(&access, 1));
     }},
    {"Evicted",
     [](Machine& machine, Block& block, NodeId node) {
       ASSERT_TRUE(machine->requests().evict(block).ok());
       EXPECT_TRUE(is_listed(block, machine.host()));
       EXPECT_FALSE(is_listed(block, node));
     }},
    {"Fetched",
     [](Machine& machine, Block& block, NodeId node) {
       ASSERT_TRUE(machine->requests().prefetch(block, machine.sim(1)).ok());
       EXPECT_TRUE(is_listed(block, node));
       EXPECT_TRUE(is_listed(block, machine.sim(1)));
     }},
    {"WrittenElsewhere",
     [](Machine& machine, Block& block, NodeId node) {
       ASSERT_TRUE(machine.write(block, machine.sim(1), pattern(kNurserySize, 2)).ok());
       EXPECT_FALSE(is_listed(block, node));
       EXPECT_TRUE(is_listed(block, machine.sim(1)));
     }},
    {"WrittenBack",
     [](Machine& machine, Block& block, NodeId node) {
       ASSERT_TRUE(machine->requests().write_back(block).ok());
       EXPECT_TRUE(is_listed(block, node));
     }},
};

INSTANTIATE_TEST_SUITE_P(Each, NewResultKept, testing::ValuesIn(kKept),
                         [](const testing::TestParamInfo<Kept>& test) { return test.param.name; });

}  // namespace
}  // namespace innkeeper::test
