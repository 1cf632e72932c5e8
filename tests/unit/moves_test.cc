// Moves (move.h): who goes first on a link, what waits in parts, what goes by way of the host with nobody
// waiting, and disks whose threads work side by side.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "support/faulty_disk.h"
#include "support/machine.h"
#include "support/soon.h"

namespace innkeeper::test {
namespace {

constexpr size_t kSize = 4096;
constexpr sim::QueueIndex kCompute = 0, kIn = 1;
constexpr LinkLimits kOneAtATime{.part = KiB(64), .few = 1, .enough = Bytes(0)};

// Blocks at the host that no accelerator has.
std::vector<Block*> at_host(Machine& machine, size_t count, size_t size = kSize) {
  std::vector<Block*> blocks;
  for (size_t i = 0; i < count; ++i) {
    blocks.push_back(machine.make(machine.sim(), pattern(size, i)).value());
    IK_CHECK(machine->evict(*blocks.back()).ok());
  }
  IK_CHECK(machine->synchronize().ok());
  return blocks;
}

void destroy(Machine& machine, const std::vector<Block*>& blocks) {
  for (Block* block : blocks) machine->destroy(block);
}

bool is_at(Machine& machine, const Block& block, NodeId node) {
  const std::vector<NodeId> where = machine->where(block);
  return std::find(where.begin(), where.end(), node) != where.end();
}

TEST(Moves, TheTableHasNoWayBack) {
  for (size_t from = 0; from < kMoveStates; ++from) {
    for (size_t to = 0; to <= from; ++to) EXPECT_FALSE(kMaySucceed[from][to]) << from << " " << to;
  }
  for (const MoveState last : {MoveState::landed, MoveState::failed, MoveState::cancelled}) {
    for (const bool may : kMaySucceed[static_cast<size_t>(last)]) EXPECT_FALSE(may);
  }
  EXPECT_FALSE(
      kMaySucceed[static_cast<size_t>(MoveState::copying)][static_cast<size_t>(MoveState::cancelled)]);
}

// Room is taken from the last hint that has no copy, before what is planned, and never from what is over.
TEST(Links, TheLastHintGivesItsRoomUpFirst) {
  Machine machine;
  Block* block = machine->create(Bytes(kSize));
  const auto waiting = [&](Priority priority) {
    auto move = std::make_shared<Move>(*block, machine.host(), machine.sim(), priority);
    move->become(MoveState::reserved);
    return move;
  };
  Link link;
  const MovePtr planned = waiting(Priority::planned), first = waiting(Priority::hint);
  const MovePtr copying = waiting(Priority::hint), over = waiting(Priority::hint);
  for (const MovePtr& move : {first, copying, over, planned}) link.wait(move);
  copying->become(MoveState::copying);
  over->become(MoveState::cancelled);
  EXPECT_EQ(link.take_last(), first);
  EXPECT_EQ(link.take_last(), planned);
  EXPECT_EQ(link.take_last(), nullptr);
  EXPECT_EQ(link.take(), copying);
  EXPECT_EQ(link.take(), nullptr);
  EXPECT_EQ(link.waiting(), 0u);
  machine->destroy(block);
}

// What nobody waits for has its room at once, and its copy when the link has time.
TEST(Moves, HintsWaitForTheLinkAndADemandPasses) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 16);
  Block* wanted = at_host(machine, 1).front();
  const double before = machine.card(machine.sim())->time(kIn);
  const Bytes used = machine->used(machine.sim());
  for (Block* block : hints) ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());
  const double one = machine.card(machine.sim())->time(kIn) - before;
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(kSize)) << "one copy is under way";
  EXPECT_EQ((machine->used(machine.sim()) - used).count(), static_cast<int64_t>(16 * kSize));
  EXPECT_EQ(machine->check_invariants(), "");

  EXPECT_EQ(machine.read(*wanted, machine.sim()).value(), pattern(kSize, 0));
  EXPECT_LT(machine.card(machine.sim())->time(kIn) - before, 2.5 * one);
  // Whoever wants one of those that wait has it next.
  EXPECT_EQ(machine.read(*hints[15], machine.sim()).value(), pattern(kSize, 15));
  EXPECT_LT(machine.card(machine.sim())->time(kIn) - before, 3.5 * one);
  for (size_t i = 0; i < hints.size(); ++i)
    EXPECT_EQ(machine.read(*hints[i], machine.sim()).value(), pattern(kSize, i));
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(17 * kSize)) << "each once";
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, hints);
  machine->destroy(wanted);
}

// The program's operators take the moves on, with no request of its own.
TEST(Moves, OperatorsTakeWaitingMovesOn) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 4);
  Block* other = machine.make(machine.sim(), pattern(kSize, 9)).value();
  for (Block* block : hints) ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());
  for (int i = 0; i < 4; ++i) {
    machine.card(machine.sim())->synchronize();  // the copies so far are done
    ASSERT_TRUE(machine.read(*other, machine.sim()).ok());
  }
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(4 * kSize));
  destroy(machine, hints);
  machine->destroy(other);
}

TEST(Moves, SynchronizingEndsThem) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 4, 3 * kSize);
  for (Block* block : hints) ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(12 * kSize));
  destroy(machine, hints);
}

// A large block goes in parts, so a demand need not wait for all of it. Each part is copied once.
TEST(Moves, ALargeBlockGoesInParts) {
  Machine machine({.budget = MiB(2), .links = {.part = KiB(16), .few = 1, .enough = Bytes(0)}});
  Block* large = at_host(machine, 1, 1 << 20).front();
  Block* wanted = at_host(machine, 1).front();
  ASSERT_TRUE(machine->prefetch(*large, machine.sim()).ok());
  EXPECT_EQ(machine->stats().bytes_fetched, int64_t{1} << 14);
  EXPECT_EQ(machine.read(*wanted, machine.sim()).value(), pattern(kSize, 0));
  for (int i = 0; i < 2; ++i) {
    machine.card(machine.sim())->synchronize();
    machine->advance();
  }
  EXPECT_GE(machine->stats().bytes_fetched, (int64_t{3} << 14) + static_cast<int64_t>(kSize));
  EXPECT_LE(machine->stats().bytes_fetched, (int64_t{4} << 14) + static_cast<int64_t>(kSize));
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_EQ(machine.read(*large, machine.sim()).value(), pattern(1 << 20, 0));
  EXPECT_EQ(machine->stats().bytes_fetched, (int64_t{1} << 20) + static_cast<int64_t>(kSize));
  destroy(machine, {large, wanted});
}

// Half of it is under way when its source is written: nobody sees old bytes.
TEST(Moves, AWriterEndsTheMoveIntoAnotherNode) {
  for (const size_t parts : {size_t{1}, size_t{8}}) {
    Machine machine({.accelerators = 2,
                     .budget = KiB(256),
                     .links = {.part = Bytes(kSize / parts), .few = 1, .enough = Bytes(0)}});
    Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
    ASSERT_TRUE(machine->prefetch(*block, machine.sim(1)).ok());
    ASSERT_TRUE(machine.write(*block, machine.sim(0), pattern(kSize, 2)).ok());
    EXPECT_EQ(machine->where(*block), std::vector<NodeId>{machine.sim(0)});
    EXPECT_EQ(machine->used(machine.sim(1)), Bytes(0)) << "its room is free again";
    EXPECT_EQ(machine.read(*block, machine.sim(1)).value(), pattern(kSize, 2));
    EXPECT_EQ(machine->check_invariants(), "");
    machine->destroy(block);
  }
}

// Room that hints hold is taken from the last of them before anybody is refused.
TEST(Moves, HintsThatWaitGiveTheirRoomUp) {
  Machine machine({.budget = KiB(32), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 8);
  for (Block* block : hints) ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());
  EXPECT_EQ(machine->used(machine.sim()), KiB(32));
  Result<Block*> made = machine.make(machine.sim(), pattern(6 * kSize, 3));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(machine.read(*made.value(), machine.sim()).value(), pattern(6 * kSize, 3));
  for (size_t i = 0; i < hints.size(); ++i)
    EXPECT_EQ(machine.read(*hints[i], machine.sim()).value(), pattern(kSize, i));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, hints);
  machine->destroy(made.value());
}

TEST(Moves, ABlockThatDiesTakesItsMoveAlong) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 4);
  for (Block* block : hints) ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());
  destroy(machine, hints);
  machine->advance();
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0));
  EXPECT_EQ(machine->used(machine.host()), Bytes(0));
  EXPECT_EQ(machine->check_invariants(), "");
}

// ---------------------------------------------------------------- disks

MachineOptions with_disk(LinkLimits links = {}) {
  return {.budget = KiB(64), .host_budget = KiB(32), .disk_budget = MiB(4), .links = links};
}

// Blocks on the disk alone.
std::vector<Block*> on_disk(Machine& machine, size_t count) {
  std::vector<Block*> blocks = at_host(machine, count);
  for (Block* block : blocks) {
    if (is_at(machine, *block, machine.host())) IK_CHECK(machine->evict(*block).ok());
    IK_CHECK(machine->where(*block) == std::vector<NodeId>{machine.disk()});
  }
  return blocks;
}

TEST(Moves, WhatIsAskedForFromADiskGoesOnByItself) {
  Machine machine(with_disk());
  machine->start_helper();
  std::vector<Block*> blocks = on_disk(machine, 4);
  for (Block* block : blocks) ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());
  // 4 reads of the disk and 4 copies to the card, while the program does nothing at all.
  EXPECT_TRUE(soon([&] { return machine->stats().fetches >= 8; }));
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.sim()).value(), pattern(kSize, i));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, blocks);
}

TEST(Moves, WithoutAHelperOperatorsTakeItOn) {
  Machine machine(with_disk());
  Block* block = on_disk(machine, 1).front();
  ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());
  ASSERT_TRUE(machine->device(machine.disk()).synchronize().ok());
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0)) << "nobody has come by";
  machine->advance();
  EXPECT_NE(machine->used(machine.sim()), Bytes(0));
  EXPECT_EQ(machine.read(*block, machine.sim()).value(), pattern(kSize, 0));
  machine->destroy(block);
}

// Whoever uses a block may be faster than whoever sees its move land; then the block may leave and be asked
// for again, and what goes on is the second move's. When the block dies, neither looks at it again (under the
// address sanitizer).
TEST(Moves, OnlyTheLastMoveOfABlockGoesOn) {
  Machine machine(with_disk());
  Block* block = on_disk(machine, 1).front();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(machine->prefetch(*block, machine.sim()).ok());  // by way of the host
    ASSERT_TRUE(machine->pin(*block, machine.host()).ok());
    machine->unpin(*block);
    ASSERT_TRUE(machine->relieve(machine.host(), Bytes(1)).ok());
    ASSERT_EQ(machine->where(*block), std::vector<NodeId>{machine.disk()});
  }
  machine->destroy(block);
  machine->advance();
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0));
  EXPECT_EQ(machine->used(machine.host()), Bytes(0));
}

// Reads and writes of the disk wait for each other here: two must be under way at once.
class Meeting {
 public:
  static bool arrive() {
    if (!open_.load()) return true;
    inside_.fetch_add(1);
    const bool met = soon([] { return inside_.load() >= 2 || !open_.load(); });
    if (met) open_.store(false);
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

TEST(Moves, SpillsRunSideBySide) {
  MachineOptions options = with_disk();
  options.disk_calls = Meeting::calls();
  Machine machine(options);
  std::vector<Block*> blocks = at_host(machine, 8);  // the host is full
  Meeting::open();
  Block* large = machine.make(machine.sim(), pattern(3 * kSize, 9)).value();
  ASSERT_TRUE(machine->evict(*large).ok());  // for which three must go
  EXPECT_TRUE(Meeting::was_held()) << "one write after the other";
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.sim()).value(), pattern(kSize, i));
  EXPECT_EQ(machine.read(*large, machine.sim()).value(), pattern(3 * kSize, 9));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, blocks);
  machine->destroy(large);
}

TEST(Moves, OperandsAreReadSideBySide) {
  MachineOptions options = with_disk();
  options.disk_calls = Meeting::calls();
  Machine machine(options);
  std::vector<Block*> blocks = on_disk(machine, 4);
  Meeting::open();
  std::vector<Access> accesses;
  for (Block* block : blocks) accesses.push_back({.block = block});
  ASSERT_TRUE(machine
                  .run(machine.sim(), accesses,
                       [](auto operands) {
                         for (size_t i = 0; i < operands.size(); ++i)
                           EXPECT_TRUE(
                               std::equal(operands[i].begin(), operands[i].end(), pattern(kSize, i).begin()));
                       })
                  .ok());
  EXPECT_TRUE(Meeting::was_held()) << "one read after the other";
  destroy(machine, blocks);
}

// The disk fails after the copy was taken: the block stays where it was, and who needed the room hears of it.
TEST(Moves, ASpillThatFailsLateLeavesTheBlockWhereItWas) {
  FaultPlan faults;
  MachineOptions options = with_disk();
  options.faults = &faults;
  options.host_computes = true;
  Machine machine(options);
  std::vector<Block*> blocks;
  for (size_t i = 0; i < 8; ++i) blocks.push_back(machine.make(machine.host(), pattern(kSize, i)).value());
  faults.arm(1, static_cast<unsigned>(Fault::late_copy), 1000);
  const Result<Block*> refused = machine.make(machine.host(), pattern(kSize, 9));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::io_error) << refused.status().message();
  faults.disarm();
  machine->advance();
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_EQ(machine->used(machine.disk()), Bytes(0));
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(machine->where(*blocks[i]), std::vector<NodeId>{machine.host()});
    EXPECT_EQ(machine.read(*blocks[i], machine.host()).value(), pattern(kSize, i));
  }
  Result<Block*> made = machine.make(machine.host(), pattern(kSize, 9));
  ASSERT_TRUE(made.ok()) << "the disk works again: " << made.status().message();
  blocks.push_back(made.value());
  destroy(machine, blocks);
}

// Who writes a block while it is being spilled keeps it, with what was written.
TEST(Moves, AVacatingReplicaThatIsWrittenStays) {
  MachineOptions options = with_disk();
  options.host_computes = true;
  options.disk_calls.write = [](int file, const void* data, size_t size, off_t offset) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return ::pwrite(file, data, size, offset);
  };
  Machine machine(options);
  std::vector<Block*> blocks;
  for (size_t i = 0; i < 8; ++i) blocks.push_back(machine.make(machine.host(), pattern(kSize, i)).value());
  std::thread other([&] {  // needs room for two
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

// A block may die while it is on its way to the disk, and its memory be handed to whoever holds it still.
TEST(Moves, AVacatingReplicaThatIsHandedOverVacatesNothing) {
  static std::atomic<int> writes;
  MachineOptions options = with_disk();
  options.host_computes = true;
  options.disk_calls.write = [](int file, const void* data, size_t size, off_t offset) {
    writes.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return ::pwrite(file, data, size, offset);
  };
  Machine machine(options);
  Block* block = machine.make(machine.host(), pattern(kSize, 1)).value();
  const int before = writes.load();
  std::thread other([&] { EXPECT_TRUE(machine->evict_all().ok()); });
  ASSERT_TRUE(soon([&] { return writes.load() != before; }));
  const Memory memory = machine->surrender(*block, machine.host());
  machine->destroy(block);
  other.join();
  EXPECT_EQ(machine->check_invariants(), "");
}

// Where the host is short of room, what leaves next is written to the disk before it must leave, so that who
// needs its room waits for no disk; as many bytes as had to be evicted, and no more.
TEST(Moves, WhatLeavesNextIsWrittenToTheDiskAhead) {
  MachineOptions options = with_disk();
  options.host_budget = KiB(16);
  options.host_computes = true;
  Machine machine(options);
  std::vector<Block*> blocks;
  for (size_t i = 0; i < 4; ++i) blocks.push_back(machine.make(machine.host(), pattern(kSize, i)).value());
  EXPECT_EQ(machine->stats().bytes_written_back, 0) << "all fits";
  blocks.push_back(machine.make(machine.host(), pattern(kSize, 4)).value());  // evicts the first
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->stats().bytes_written_back, static_cast<int64_t>(2 * kSize));
  EXPECT_EQ(machine->where(*blocks[1]).size(), 2u) << "the next one is on the disk too";
  EXPECT_EQ(machine->where(*blocks[2]).size(), 1u);
  EXPECT_EQ(machine->check_invariants(), "");
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.host()).value(), pattern(kSize, i));
  destroy(machine, blocks);
}

// The parts of a block may come from two nodes: the copies from the one are waited for when those from the
// other are.
TEST(Moves, PartsFromASecondSourceComeAfterWhatFillsIt) {
  Machine machine(
      {.accelerators = 2, .budget = KiB(64), .links = {.part = KiB(1), .few = 1, .enough = Bytes(0)}});
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->write_back(*block).ok());  // the first part of it
  ASSERT_TRUE(machine->pin(*block, machine.sim(1)).ok());
  ASSERT_TRUE(machine->relieve(machine.sim(0), Bytes(1)).ok());  // the source of the first part leaves
  EXPECT_FALSE(is_at(machine, *block, machine.sim(0)));
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_TRUE(is_at(machine, *block, machine.host()));
  machine->unpin(*block);
  ASSERT_TRUE(machine->relieve(machine.sim(1), Bytes(1)).ok());
  EXPECT_EQ(machine.read(*block, machine.sim(0)).value(), pattern(kSize, 1));
  machine->destroy(block);
}

// A disk copies whole blocks, so what had begun as parts from a card, which let the block go, begins anew.
TEST(Moves, WhatADiskTakesOverBeginsAnew) {
  Machine machine({.budget = KiB(256),
                   .host_budget = KiB(256),
                   .disk_budget = MiB(4),
                   .links = {.part = KiB(1), .few = 1, .enough = Bytes(0)}});
  Block* block = at_host(machine, 1).front();
  ASSERT_TRUE(machine->evict(*block).ok());
  ASSERT_TRUE(machine.read(*block, machine.sim()).ok());
  ASSERT_TRUE(machine->relieve(machine.host(), Bytes(1)).ok());
  ASSERT_FALSE(is_at(machine, *block, machine.host()));
  ASSERT_TRUE(machine->prefetch(*block, machine.host()).ok());  // one part, from the card
  ASSERT_TRUE(machine->relieve(machine.sim(), Bytes(1)).ok());
  ASSERT_FALSE(is_at(machine, *block, machine.sim()));
  EXPECT_EQ(machine.read(*block, machine.host()).value(), pattern(kSize, 0));
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

// ---------------------------------------------------------------- tickets

TEST(Tickets, HoldRoomUntilTheyAreTakenOrGivenBack) {
  Machine machine({.budget = KiB(16)});
  const NodeId card = machine.sim();
  {
    Result<Ticket> ticket = machine->reserve(card, KiB(12), Reserve::free_room);
    ASSERT_TRUE(ticket.ok());
    EXPECT_EQ(machine->used(card), KiB(12));
    EXPECT_EQ(machine->check_invariants(), "") << "promised is neither lost nor there";
    EXPECT_EQ(machine->reserve(card, KiB(8), Reserve::free_room).status().code(), Code::busy);
    {
      ArmedTicket armed(ticket.value());
      Result<Memory> memory = machine->device(card).allocate(KiB(8));
      ASSERT_TRUE(memory.ok());
      EXPECT_EQ(machine->used(card), KiB(12)) << "charged once";
      EXPECT_EQ(ticket.value().left(), KiB(4));
      EXPECT_EQ(machine->check_invariants(), "");
    }
    Result<Memory> more = machine->device(card).allocate(KiB(4));
    ASSERT_TRUE(more.ok());
    EXPECT_EQ(machine->used(card), KiB(8)) << "not armed any more";
  }
  EXPECT_EQ(machine->used(card), Bytes(0));
  EXPECT_EQ(machine->check_invariants(), "");
}

TEST(Tickets, OfAnotherNodeAreLeftAlone) {
  Machine machine({.accelerators = 2, .budget = KiB(16)});
  Result<Ticket> ticket = machine->reserve(machine.sim(0), KiB(12), Reserve::free_room);
  ASSERT_TRUE(ticket.ok());
  const ArmedTicket armed(ticket.value());
  Result<Memory> memory = machine->device(machine.sim(1)).allocate(KiB(8));
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(ticket.value().left(), KiB(12));
  EXPECT_EQ(machine->used(machine.sim(1)), KiB(8));
}

TEST(Tickets, FreeRoomAloneEvictsNothingAndEvictingWaitsForNobody) {
  Machine machine({.budget = KiB(16)});
  Block* block = machine.make(machine.sim(), pattern(3 * kSize, 1)).value();
  EXPECT_EQ(machine->reserve(machine.sim(), KiB(8), Reserve::free_room).status().code(), Code::busy);
  EXPECT_EQ(machine->stats().evictions, 0);
  EXPECT_TRUE(machine->reserve(machine.sim(), KiB(8), Reserve::may_evict).ok());
  EXPECT_EQ(machine->stats().evictions, 1);
  // Another thread's operator holds the room.
  Access access{.block = block};
  const OperatorScope scope(machine.engine(), machine.sim(), block->size());
  ASSERT_TRUE(machine->acquire(machine.sim(), std::span(&access, 1)).ok());
  std::thread([&] {
    EXPECT_EQ(machine->reserve(machine.sim(), KiB(8), Reserve::may_evict).status().code(), Code::busy);
  }).join();
  machine->release(machine.sim(), std::span(&access, 1));
  machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
