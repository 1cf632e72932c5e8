// Moves to and from a disk: moves through the host that no thread waits for, disk threads that work
// concurrently, and the thread that sees a spill land.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "support/at_points.h"
#include "support/block_locations.h"
#include "support/faulty_disk.h"
#include "support/machine.h"
#include "support/soon.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

MachineOptions with_disk(LinkLimits links = {}) {
  return {.budget = KiB(64), .host_budget = KiB(32), .disk_budget = MiB(4), .links = links};
}
MachineOptions with_disk_and_computing_host() {
  MachineOptions options = with_disk();
  options.host_computes = true;
  return options;
}

// Blocks whose only replica is on the disk.
std::vector<Block*> on_disk(Machine& machine, size_t count) {
  std::vector<Block*> blocks = at_host(machine, count);
  for (Block* block : blocks) {
    if (is_at(machine, *block, machine.host())) IK_CHECK(machine->requests().evict(*block).ok());
    IK_CHECK(machine->requests().where(*block) == std::vector<NodeId>{machine.disk()});
  }
  return blocks;
}

// A gate at which the disk's reads and writes wait while it is closed.
class Gate {
 public:
  Gate() { closed_.store(true); }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() { closed_.store(false); }

  static DiskCalls calls() {
    DiskCalls calls = DiskCalls::of_the_system();
    calls.write = [](int file, const void* data, size_t size, off_t offset) {
      (void)soon([] { return !closed_.load(); });
      return ::pwrite(file, data, size, offset);
    };
    calls.read = [](int file, void* data, size_t size, off_t offset) {
      (void)soon([] { return !closed_.load(); });
      return ::pread(file, data, size, offset);
    };
    return calls;
  }

 private:
  inline static std::atomic<bool> closed_{false};
};

// 4 reads of the disk and 4 copies to the GPU, while the program does nothing at all.
TEST(DiskMoves, AFetchFromADiskContinuesByItself) {
  MachineOptions options = with_disk();
  options.disk_calls = Gate::calls();
  Machine machine(options);
  machine->mover().thread().start();
  std::vector<Block*> blocks = on_disk(machine, 4);
  {
    Gate gate;
    for (Block* block : blocks) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
    // No move has landed yet for a thread that looks now.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(soon([&] { return machine->stats().fetches >= 8; }));
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.sim()).value(), pattern(kSize, i));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, blocks);
}

// The disk has read the block before the asking thread releases it: the helper must leave it alone once.
TEST(DiskMoves, WhatTheHelperLeavesAloneItComesBackTo) {
  Machine machine(with_disk());
  machine->mover().thread().start();
  Block* block = on_disk(machine, 1).front();
  const std::thread::id self = std::this_thread::get_id();
  {
    const AtPoints points([&](const char* name) {
      if (std::this_thread::get_id() != self || std::strcmp(name, "asked") != 0) return;
      EXPECT_TRUE(machine->device(machine.disk()).synchronize().ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    });
    ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  }
  EXPECT_TRUE(soon([&] { return machine->stats().fetches >= 2; }));
  EXPECT_EQ(machine.read(*block, machine.sim()).value(), pattern(kSize, 0));
  machine->destroy(block);
}

TEST(DiskMoves, WithoutAHelperOperatorsTakeItOn) {
  Machine machine(with_disk());
  Block* block = on_disk(machine, 1).front();
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  ASSERT_TRUE(machine->device(machine.disk()).synchronize().ok());
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0)) << "nobody has come by";
  machine->mover().advance();
  EXPECT_NE(machine->used(machine.sim()), Bytes(0));
  EXPECT_EQ(machine.read(*block, machine.sim()).value(), pattern(kSize, 0));
  machine->destroy(block);
}

// A thread that uses a block may be faster than the thread that sees its move land. Then the block may leave
// and be fetched again, and the next hop belongs to the second move. When the block dies, neither thread
// looks at it again (under the address sanitizer).
TEST(DiskMoves, OnlyTheLastMoveOfABlockGoesOn) {
  Machine machine(with_disk());
  Block* block = on_disk(machine, 1).front();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());  // The move goes through the host.
    ASSERT_TRUE(machine->requests().pin(*block, machine.host()).ok());
    machine->requests().unpin(*block);
    ASSERT_TRUE(machine->evictor().relieve(machine.host(), Bytes(1)).ok());
    ASSERT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.disk()});
  }
  machine->destroy(block);
  machine->mover().advance();
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0));
  EXPECT_EQ(machine->used(machine.host()), Bytes(0));
}

// Reads and writes of the disk wait here for each other: two must be under way at once.
class Meeting {
 public:
  static bool arrive() {
    if (!open_.load()) return true;
    inside_.fetch_add(1);
    const bool met = soon([] { return inside_.load() >= 2 || !open_.load(); });
    if (met) {
      open_.store(false);
    } else {
      inside_.fetch_sub(1);  // The next call comes too late.
    }
    return met;
  }
  static void open() {
    inside_.store(0);
    open_.store(true);
  }
  static bool was_held() { return !open_.exchange(false); }
  static DiskCalls calls() {
    DiskCalls calls = DiskCalls::of_the_system();
    calls.write = [](int file, const void* data, size_t size, off_t offset) {
      (void)arrive();
      return ::pwrite(file, data, size, offset);
    };
    calls.read = [](int file, void* data, size_t size, off_t offset) {
      (void)arrive();
      return ::pread(file, data, size, offset);
    };
    return calls;
  }

 private:
  inline static std::atomic<int> inside_{0};
  inline static std::atomic<bool> open_{false};
};

TEST(DiskMoves, SpillsRunSideBySide) {
  MachineOptions options = with_disk();
  options.disk_calls = Meeting::calls();
  Machine machine(options);
  std::vector<Block*> blocks = at_host(machine, 8);  // The host is full.
  Meeting::open();
  Block* large = machine.make(machine.sim(), pattern(3 * kSize, 9)).value();
  ASSERT_TRUE(machine->requests().evict(*large).ok());  // Three blocks must leave for it.
  EXPECT_TRUE(Meeting::was_held()) << "one write after the other";
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.sim()).value(), pattern(kSize, i));
  EXPECT_EQ(machine.read(*large, machine.sim()).value(), pattern(3 * kSize, 9));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, blocks);
  machine->destroy(large);
}

// The host waits for each of its operands before it asks for the next, a GPU for none.
TEST(DiskMoves, OperandsAreReadSideBySide) {
  for (const bool at_gpu : {true, false}) {
    MachineOptions options = with_disk_and_computing_host();
    options.disk_calls = Meeting::calls();
    Machine machine(options);
    std::vector<Block*> blocks = on_disk(machine, 4);
    Meeting::open();
    std::vector<Access> accesses;
    for (Block* block : blocks) accesses.push_back({.block = block});
    const auto kernel = [](auto operands) {
      for (size_t i = 0; i < operands.size(); ++i)
        EXPECT_TRUE(std::equal(operands[i].begin(), operands[i].end(), pattern(kSize, i).begin()));
    };
    ASSERT_TRUE(machine.run(at_gpu ? machine.sim() : machine.host(), accesses, kernel).ok());
    EXPECT_TRUE(Meeting::was_held()) << "one read after the other";
    destroy(machine, blocks);
  }
}

// The disk fails after the copy was taken: the block stays at its node, and the operator that needed the
// space gets the error.
TEST(DiskMoves, ASpillThatFailsLateLeavesTheBlockWhereItWas) {
  FaultPlan faults;
  MachineOptions options = with_disk_and_computing_host();
  options.faults = &faults;
  Machine machine(options);
  std::vector<Block*> blocks;
  for (size_t i = 0; i < 8; ++i) blocks.push_back(machine.make(machine.host(), pattern(kSize, i)).value());
  faults.arm(1, static_cast<unsigned>(Fault::late_copy), 1000);
  const Result<Block*> refused = machine.make(machine.host(), pattern(kSize, 9));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::io_error) << refused.status().message();
  faults.disarm();
  machine->mover().advance();
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_EQ(machine->used(machine.disk()), Bytes(0));
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(machine->requests().where(*blocks[i]), std::vector<NodeId>{machine.host()});
    EXPECT_EQ(machine.read(*blocks[i], machine.host()).value(), pattern(kSize, i));
  }
  Result<Block*> made = machine.make(machine.host(), pattern(kSize, 9));
  ASSERT_TRUE(made.ok()) << "the disk works again: " << made.status().message();
  blocks.push_back(made.value());
  destroy(machine, blocks);
}

// Calls `ask`, which waits for blocks that leave the host for the disk. Another thread sees them land, but
// has not freed them yet when `ask` first looks: `ask` must look again.
void while_another_thread_lands(Machine& machine, const std::function<void()>& ask) {
  const Watchdog watchdog(std::chrono::seconds(30));
  const std::thread::id self = std::this_thread::get_id();
  std::atomic<bool> landed = false;
  std::atomic<bool> looked = false;
  std::thread other;
  const AtPoints points([&](const char* name) {
    const bool mine = std::this_thread::get_id() == self;
    if (mine && std::strcmp(name, "wait landing") == 0 && !other.joinable()) {
      other = std::thread([&] {
        while (!landed) machine->mover().advance();
      });
      while (!landed) std::this_thread::yield();
    } else if (mine && std::strcmp(name, "wait") == 0) {
      looked = true;
    } else if (!mine && std::strcmp(name, "landed") == 0) {
      landed = true;
      while (!looked) std::this_thread::yield();
    }
  });
  ask();
  EXPECT_TRUE(looked) << "it did not wait";
  looked = true;
  ASSERT_TRUE(other.joinable());
  other.join();
}

TEST(DiskMoves, WhatAnotherThreadSeesLandHasLeftWhenEvictReturns) {
  for (const bool all : {false, true}) {
    Machine machine(with_disk_and_computing_host());
    Block* block = machine.make(machine.host(), pattern(kSize, 1)).value();
    while_another_thread_lands(machine, [&] {
      EXPECT_TRUE((all ? machine->evictor().evict_all() : machine->requests().evict(*block)).ok());
      EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.disk()});
    });
    EXPECT_EQ(machine.read(*block, machine.host()).value(), pattern(kSize, 1));
    EXPECT_EQ(machine->check_invariants(), "");
    machine->destroy(block);
  }
}

TEST(DiskMoves, WhatTheUserEvictsIsNoVictimWhileItLeaves) {
  Machine machine(with_disk_and_computing_host());
  Block* block = machine.make(machine.host(), pattern(kSize, 1)).value();
  std::string broken = "not looked at";
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait landing") == 0) broken = machine->check_invariants();
    });
    EXPECT_TRUE(machine->requests().evict(*block).ok());
  }
  EXPECT_EQ(broken, "");
  EXPECT_EQ(machine.read(*block, machine.host()).value(), pattern(kSize, 1));
  machine->destroy(block);
}

TEST(DiskMoves, ForWhatAnotherThreadSeesLandNoOtherBlockLeaves) {
  Machine machine(with_disk_and_computing_host());
  Block* first = machine.make(machine.host(), pattern(kSize, 1)).value();
  Block* second = machine.make(machine.host(), pattern(kSize, 2)).value();
  while_another_thread_lands(machine,
                             [&] { EXPECT_TRUE(machine->set_budget(machine.host(), Bytes(kSize)).ok()); });
  EXPECT_EQ(machine->requests().where(*first), std::vector<NodeId>{machine.disk()});
  EXPECT_EQ(machine->requests().where(*second), std::vector<NodeId>{machine.host()});
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : {first, second}) machine->destroy(block);
}

// The host is full, and the only block that leaves it is one that this thread fetches: the thread must wait
// for another block.
TEST(DiskMoves, AThreadDoesNotWaitForWhatItMovesItself) {
  MachineOptions options = with_disk_and_computing_host();
  options.budget = options.host_budget = Bytes(2 * kSize);
  options.disk_calls = Gate::calls();
  Machine machine(options);
  const Watchdog watchdog(std::chrono::seconds(30));
  std::vector<Block*> dirty;
  for (size_t i = 0; i < 2; ++i) dirty.push_back(machine.make(machine.sim(), pattern(kSize, i)).value());
  Block* leaves = machine.make(machine.host(), pattern(kSize, 2)).value();
  Block* stays = machine.make(machine.host(), pattern(kSize, 3)).value();
  const std::thread::id self = std::this_thread::get_id();
  Gate gate;
  std::atomic<bool> vacating = false;
  Result<Block*> made = Status(Code::busy, "");
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait landing") != 0) return;
      if (std::this_thread::get_id() == self) {
        gate.open();
      } else {
        vacating = true;
      }
    });
    std::thread other([&] { made = machine.make(machine.host(), pattern(kSize, 4)); });
    EXPECT_TRUE(soon([&] { return vacating.load(); }));
    // One block must go to the host.
    EXPECT_EQ(machine.read(*leaves, machine.sim()).value(), pattern(kSize, 2));
    other.join();
  }
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(machine.read(*made.value(), machine.host()).value(), pattern(kSize, 4));
  EXPECT_EQ(machine.read(*stays, machine.host()).value(), pattern(kSize, 3));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, dirty);
  destroy(machine, {leaves, stays, made.value()});
}

// A block that an operator writes during its spill stays, with the written bytes.
TEST(DiskMoves, AVacatingReplicaThatIsWrittenStays) {
  MachineOptions options = with_disk_and_computing_host();
  options.disk_calls.write = [](int file, const void* data, size_t size, off_t offset) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return ::pwrite(file, data, size, offset);
  };
  Machine machine(options);
  std::vector<Block*> blocks;
  for (size_t i = 0; i < 8; ++i) blocks.push_back(machine.make(machine.host(), pattern(kSize, i)).value());
  std::thread other([&] {  // Needs space for two blocks.
    Result<Block*> made = machine.make(machine.host(), pattern(2 * kSize, 9));
    ASSERT_TRUE(made.ok()) << made.status().message();
    machine->destroy(made.value());
  });
  for (size_t round = 0; round < 20; ++round) {
    for (size_t i = 0; i < blocks.size(); ++i)
      ASSERT_TRUE(machine.write(*blocks[i], machine.host(), pattern(kSize, 100 * round + i)).ok());
  }
  other.join();
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.host()).value(), pattern(kSize, 1900 + i));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, blocks);
}

// A block may die during its move to the disk, and its memory may pass to a holder that keeps it.
TEST(DiskMoves, AVacatingReplicaThatIsHandedOverVacatesNothing) {
  static std::atomic<int> writes;
  MachineOptions options = with_disk_and_computing_host();
  options.disk_calls.write = [](int file, const void* data, size_t size, off_t offset) {
    writes.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return ::pwrite(file, data, size, offset);
  };
  Machine machine(options);
  Block* block = machine.make(machine.host(), pattern(kSize, 1)).value();
  const int before = writes.load();
  std::thread other([&] { EXPECT_TRUE(machine->evictor().evict_all().ok()); });
  ASSERT_TRUE(soon([&] { return writes.load() != before; }));
  const Memory memory = machine->detach(*block, machine.host());
  machine->destroy(block);
  other.join();
  EXPECT_EQ(machine->check_invariants(), "");
}

// When the host is short of free space, the engine writes the next victims to the disk ahead, so that an
// operator that needs their space waits for no disk. It writes as many bytes as it had to evict, and no more.
TEST(DiskMoves, WhatLeavesNextIsWrittenToTheDiskAhead) {
  MachineOptions options = with_disk_and_computing_host();
  options.host_budget = KiB(16);
  Machine machine(options);
  std::vector<Block*> blocks;
  for (size_t i = 0; i < 4; ++i) blocks.push_back(machine.make(machine.host(), pattern(kSize, i)).value());
  EXPECT_EQ(machine->stats().bytes_written_back, 0) << "all fits";
  blocks.push_back(machine.make(machine.host(), pattern(kSize, 4)).value());  // Evicts the first block.
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->stats().bytes_written_back, static_cast<int64_t>(2 * kSize));
  EXPECT_EQ(machine->requests().where(*blocks[1]).size(), 2u) << "the next one is on the disk too";
  for (int round = 0; round < 4; ++round) {  // Operators whose operands are present.
    ASSERT_TRUE(machine.read(*blocks[4], machine.host()).ok());
    ASSERT_TRUE(machine->synchronize().ok());
  }
  EXPECT_EQ(machine->requests().where(*blocks[2]).size(), 1u) << "as much as had to leave, and no more";
  EXPECT_EQ(machine->check_invariants(), "");
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.host()).value(), pattern(kSize, i));
  destroy(machine, blocks);
}

// A disk copies whole blocks, so a copy that a GPU began in parts and released begins again.
TEST(DiskMoves, AMoveThatADiskTakesOverRestarts) {
  Machine machine({.budget = KiB(256),
                   .host_budget = KiB(256),
                   .disk_budget = MiB(4),
                   .links = {.part = KiB(1), .few = 1, .enough = Bytes(0)}});
  Block* block = at_host(machine, 1).front();
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  ASSERT_TRUE(machine.read(*block, machine.sim()).ok());
  ASSERT_TRUE(machine->evictor().relieve(machine.host(), Bytes(1)).ok());
  ASSERT_FALSE(is_at(machine, *block, machine.host()));
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.host()).ok());  // one part, from the GPU
  ASSERT_TRUE(machine->evictor().relieve(machine.sim(), Bytes(1)).ok());
  ASSERT_FALSE(is_at(machine, *block, machine.sim()));
  EXPECT_EQ(machine.read(*block, machine.host()).value(), pattern(kSize, 0));
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
