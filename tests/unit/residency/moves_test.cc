// Moves (move.h) between GPUs and the host: their order on a link, and copies in parts.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/block_locations.h"
#include "support/machine.h"
#include "support/soon.h"

namespace innkeeper::test {
namespace {

constexpr sim::QueueIndex kCompute = 0, kIn = 1;
constexpr LinkLimits kOneAtATime{.part = KiB(64), .few = 1, .enough = Bytes(0)};
constexpr LinkLimits kInParts{.part = KiB(1), .few = 1, .enough = Bytes(0)};

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

// The engine takes space from the last hint without a copy, then from planned moves, and never from finished
// ones.
TEST(Links, TheLastHintGivesUpItsMemoryFirst) {
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

// A move that no thread waits for has its space at once, and its copy when the link is free.
TEST(Moves, HintsWaitForTheLinkAndADemandPasses) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 16);
  Block* wanted = at_host(machine, 1).front();
  const double before = machine.gpu(machine.sim())->time(kIn);
  const Bytes used = machine->used(machine.sim());
  for (Block* block : hints) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  const double one = machine.gpu(machine.sim())->time(kIn) - before;
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(kSize)) << "one copy is under way";
  EXPECT_EQ((machine->used(machine.sim()) - used).count(), static_cast<int64_t>(16 * kSize));
  EXPECT_EQ(machine->check_invariants(), "");

  EXPECT_EQ(machine.read(*wanted, machine.sim()).value(), pattern(kSize, 0));
  EXPECT_LT(machine.gpu(machine.sim())->time(kIn) - before, 2.5 * one);
  // A waiting move comes next as soon as an operator needs its block.
  EXPECT_EQ(machine.read(*hints[15], machine.sim()).value(), pattern(kSize, 15));
  EXPECT_LT(machine.gpu(machine.sim())->time(kIn) - before, 3.5 * one);
  for (size_t i = 0; i < hints.size(); ++i)
    EXPECT_EQ(machine.read(*hints[i], machine.sim()).value(), pattern(kSize, i));
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(17 * kSize)) << "each once";
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, hints);
  machine->destroy(wanted);
}

// The program's operators advance the moves, without a request of its own.
TEST(Moves, OperatorsTakeWaitingMovesOn) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 4);
  Block* other = machine.make(machine.sim(), pattern(kSize, 9)).value();
  for (Block* block : hints) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  for (int i = 0; i < 4; ++i) {
    machine.gpu(machine.sim())->synchronize();  // Ends the copies so far.
    ASSERT_TRUE(machine.read(*other, machine.sim()).ok());
  }
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(4 * kSize));
  destroy(machine, hints);
  machine->destroy(other);
}

// Waiting moves also go on without an operator, on a device that reports no completion.
TEST(Moves, AMoveThatWaitsForALinkContinuesByItself) {
  Machine machine({.budget = KiB(256), .links = kInParts, .unseen = true});
  machine->mover().thread().start();
  std::vector<Block*> hints = at_host(machine, 4, 3 * kSize);
  const int64_t before = machine->stats().bytes_fetched;
  for (Block* block : hints) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  EXPECT_TRUE(soon([&] {
    machine.gpu(machine.sim())->synchronize();  // Ends the copies so far.
    return machine->stats().bytes_fetched - before == static_cast<int64_t>(12 * kSize);
  }));
  for (size_t i = 0; i < hints.size(); ++i)
    EXPECT_EQ(machine.read(*hints[i], machine.sim()).value(), pattern(3 * kSize, i));
  EXPECT_EQ(machine->check_invariants(), "");
  destroy(machine, hints);
}

// As at a program's end, when devices are about to go. A waiting move goes on when an operator needs its
// block.
TEST(Moves, AHelperThatWasStoppedBeginsNothingMore) {
  Machine machine({.budget = KiB(256), .links = kInParts, .unseen = true});
  machine->mover().thread().start();
  std::vector<Block*> hints = at_host(machine, 4, 3 * kSize);
  for (Block* block : hints) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  machine->mover().thread().stop();
  const int64_t before = machine->stats().bytes_fetched;
  for (int i = 0; i < 20; ++i) {
    machine.gpu(machine.sim())->synchronize();  // Ends the copies so far.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(machine->stats().bytes_fetched, before);
  for (size_t i = 0; i < hints.size(); ++i)
    EXPECT_EQ(machine.read(*hints[i], machine.sim()).value(), pattern(3 * kSize, i));
  machine->mover().thread().stop();
  destroy(machine, hints);
}

// A thread that synchronizes starts all parts, even of a block of which the helper is about to start one.
TEST(Moves, SynchronizingEndsWhatTheHelperHasInItsHands) {
  Machine machine({.budget = KiB(256), .links = kInParts, .unseen = true});
  std::atomic<bool> in_its_hands{false};
  machine->set_observers(
      {.copies = [&, self = std::this_thread::get_id()](const Device&, const Device&, Bytes,
                                                        const std::function<void()>& copy) {
        if (std::this_thread::get_id() != self && !in_its_hands.exchange(true))
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        copy();
      }});
  Block* block = at_host(machine, 1, 3 * kSize).front();
  machine->mover().thread().start();
  const int64_t before = machine->stats().bytes_fetched;
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  machine.gpu(machine.sim())->synchronize();  // Ends the first part.
  ASSERT_TRUE(soon([&] { return in_its_hands.load(); }));
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->stats().bytes_fetched - before, static_cast<int64_t>(3 * kSize));
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

// A large block moves to the host, followed by one without bytes.
std::pair<Block*, Block*> waiting_without_bytes(Machine& machine) {
  Block* large = machine.make(machine.sim(), pattern(4 * kSize, 1)).value();
  Block* empty = machine->create(Bytes(0));
  EXPECT_TRUE(machine.write(*empty, machine.sim(), {}).ok());
  EXPECT_TRUE(machine->requests().write_back(*large).ok());
  EXPECT_TRUE(machine->requests().write_back(*empty).ok());
  return {large, empty};
}

// A block without bytes needs no copy, but waits for the link like others.
TEST(Moves, ABlockWithoutBytesThatWaitedForTheLinkLands) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  const auto [large, empty] = waiting_without_bytes(machine);
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_TRUE(is_at(machine, *empty, machine.host()));
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : {large, empty}) machine->destroy(block);
}

TEST(Moves, ABlockThatGetsItsBytesIsCopiedNowhereWithoutThem) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  const auto [large, empty] = waiting_without_bytes(machine);
  Result<Memory> memory = machine->device(machine.sim()).allocate(Bytes(kSize));
  ASSERT_TRUE(memory.ok());
  machine->replace(*empty, machine.sim(), std::move(memory).value(), Bytes(kSize));
  EXPECT_EQ(machine->requests().where(*empty), std::vector<NodeId>{machine.sim()});
  EXPECT_EQ(machine->check_invariants(), "");
  ASSERT_TRUE(machine.write(*empty, machine.sim(), pattern(kSize, 2)).ok());
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->requests().where(*empty), std::vector<NodeId>{machine.sim()});
  EXPECT_EQ(machine.read(*empty, machine.host()).value(), pattern(kSize, 2));
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : {large, empty}) machine->destroy(block);
}

TEST(Moves, SynchronizingEndsThem) {
  Machine machine({.budget = KiB(256), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 4, 3 * kSize);
  for (Block* block : hints) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->stats().bytes_fetched, static_cast<int64_t>(12 * kSize));
  destroy(machine, hints);
}

// A large block moves in parts, so a demand fetch need not wait for all of it. Each part is copied once.
TEST(Moves, ALargeBlockGoesInParts) {
  Machine machine({.budget = MiB(2), .links = {.part = KiB(16), .few = 1, .enough = Bytes(0)}});
  Block* large = at_host(machine, 1, 1 << 20).front();
  Block* wanted = at_host(machine, 1).front();
  ASSERT_TRUE(machine->requests().prefetch(*large, machine.sim()).ok());
  EXPECT_EQ(machine->stats().bytes_fetched, int64_t{1} << 14);
  EXPECT_EQ(machine.read(*wanted, machine.sim()).value(), pattern(kSize, 0));
  for (int i = 0; i < 2; ++i) {
    machine.gpu(machine.sim())->synchronize();
    machine->mover().advance();
  }
  EXPECT_GE(machine->stats().bytes_fetched, (int64_t{3} << 14) + static_cast<int64_t>(kSize));
  EXPECT_LE(machine->stats().bytes_fetched, (int64_t{4} << 14) + static_cast<int64_t>(kSize));
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_EQ(machine.read(*large, machine.sim()).value(), pattern(1 << 20, 0));
  EXPECT_EQ(machine->stats().bytes_fetched, (int64_t{1} << 20) + static_cast<int64_t>(kSize));
  destroy(machine, {large, wanted});
}

// Half of the block is under way when an operator writes its source: no reader sees old bytes.
TEST(Moves, AWriterEndsTheMoveIntoAnotherNode) {
  for (const size_t parts : {size_t{1}, size_t{8}}) {
    Machine machine({.accelerators = 2,
                     .budget = KiB(256),
                     .links = {.part = Bytes(kSize / parts), .few = 1, .enough = Bytes(0)}});
    Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
    ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok());
    ASSERT_TRUE(machine.write(*block, machine.sim(0), pattern(kSize, 2)).ok());
    EXPECT_EQ(machine->requests().where(*block), std::vector<NodeId>{machine.sim(0)});
    EXPECT_EQ(machine->used(machine.sim(1)), Bytes(0)) << "its room is free again";
    EXPECT_EQ(machine.read(*block, machine.sim(1)).value(), pattern(kSize, 2));
    EXPECT_EQ(machine->check_invariants(), "");
    machine->destroy(block);
  }
}

// The engine takes the space of the last hints before it refuses an allocation.
TEST(Moves, WaitingHintsGiveUpTheirMemory) {
  Machine machine({.budget = KiB(32), .links = kOneAtATime});
  std::vector<Block*> hints = at_host(machine, 8);
  for (Block* block : hints) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
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
  for (Block* block : hints) ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim()).ok());
  machine->destroy(hints.back());
  hints.pop_back();
  EXPECT_EQ(machine->used(machine.sim()), Bytes(3 * kSize)) << "its room is free at once";
  destroy(machine, hints);
  machine->mover().advance();
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0));
  EXPECT_EQ(machine->used(machine.host()), Bytes(0));
  EXPECT_EQ(machine->check_invariants(), "");
}

// The parts of a block may come from two nodes: a wait for the copies from one node also waits for those from
// the other.
TEST(Moves, PartsFromASecondSourceComeAfterWhatFillsIt) {
  Machine machine({.accelerators = 2, .links = kInParts});
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().write_back(*block).ok());  // Copies its first part.
  ASSERT_TRUE(machine->requests().pin(*block, machine.sim(1)).ok());
  ASSERT_TRUE(
      machine->evictor().relieve(machine.sim(0), Bytes(1)).ok());  // The source of the first part leaves.
  EXPECT_FALSE(is_at(machine, *block, machine.sim(0)));
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_TRUE(is_at(machine, *block, machine.host()));
  machine->requests().unpin(*block);
  ASSERT_TRUE(machine->evictor().relieve(machine.sim(1), Bytes(1)).ok());
  EXPECT_EQ(machine.read(*block, machine.sim(0)).value(), pattern(kSize, 1));
  machine->destroy(block);
}

// Each source has its own queue for copies out: the last part may arrive before the first.
TEST(Moves, PartsFromTwoGpusAreAllWaitedFor) {
  Machine machine({.accelerators = 2, .host_computes = true, .links = kInParts});
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().write_back(*block).ok());  // Copies its first part.
  ASSERT_TRUE(machine->requests().pin(*block, machine.sim(1)).ok());
  machine->requests().unpin(*block);
  ASSERT_TRUE(machine->evictor().relieve(machine.sim(0), Bytes(1)).ok());
  ASSERT_FALSE(is_at(machine, *block, machine.sim(0)));
  EXPECT_EQ(machine.read(*block, machine.host()).value(), pattern(kSize, 1));
  machine->destroy(block);
}

// The second source may still be in flight, as the host's replica is during a write-back.
TEST(Moves, PartsFromTheHostComeAfterWhatWasWrittenBack) {
  Machine machine({.accelerators = 2, .links = kInParts});
  Block* block = machine.make(machine.sim(1), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().write_back(*block).ok());
  ASSERT_TRUE(
      machine->requests().prefetch(*block, machine.sim(0)).ok());  // the first part, from the other GPU
  for (int part = 1; part < 4; ++part) {
    machine.gpu(machine.sim(1))->synchronize();
    machine->mover().advance();  // Copies the next part to the host.
  }
  ASSERT_TRUE(is_at(machine, *block, machine.host()));
  ASSERT_FALSE(is_at(machine, *block, machine.sim(0)));
  ASSERT_TRUE(machine->evictor().relieve(machine.sim(1), Bytes(1)).ok());
  ASSERT_FALSE(is_at(machine, *block, machine.sim(1)));
  EXPECT_EQ(machine.read(*block, machine.sim(0)).value(), pattern(kSize, 1));
  machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
