// Reservations (reservation.h): bytes of a budget promised before allocation.
#include <gtest/gtest.h>

#include <thread>

#include "support/block_locations.h"
#include "support/machine.h"

namespace innkeeper::test {
namespace {

TEST(Reservations, HoldSpaceUntilTheyAreUsedOrReturned) {
  Machine machine({.budget = KiB(16)});
  const NodeId gpu = machine.sim();
  {
    Result<Reservation> reservation = machine->evictor().reserve(gpu, KiB(12), Reserve::free_only);
    ASSERT_TRUE(reservation.ok());
    EXPECT_EQ(machine->used(gpu), KiB(12));
    EXPECT_EQ(machine->check_invariants(), "") << "promised is neither lost nor there";
    EXPECT_EQ(machine->evictor().reserve(gpu, KiB(8), Reserve::free_only).status().code(), Code::busy);
    {
      ArmedReservation armed(reservation.value());
      Result<Memory> memory = machine->device(gpu).allocate(KiB(8));
      ASSERT_TRUE(memory.ok());
      EXPECT_EQ(machine->used(gpu), KiB(12)) << "charged once";
      EXPECT_EQ(reservation.value().left(), KiB(4));
      EXPECT_EQ(machine->check_invariants(), "");
    }
    Result<Memory> more = machine->device(gpu).allocate(KiB(4));
    ASSERT_TRUE(more.ok());
    EXPECT_EQ(machine->used(gpu), KiB(8)) << "not armed any more";
  }
  EXPECT_EQ(machine->used(gpu), Bytes(0));
  EXPECT_EQ(machine->check_invariants(), "");
}

TEST(Reservations, OfAnotherNodeAreLeftAlone) {
  Machine machine({.accelerators = 2, .budget = KiB(16)});
  Result<Reservation> reservation = machine->evictor().reserve(machine.sim(0), KiB(12), Reserve::free_only);
  ASSERT_TRUE(reservation.ok());
  const ArmedReservation armed(reservation.value());
  Result<Memory> memory = machine->device(machine.sim(1)).allocate(KiB(8));
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reservation.value().left(), KiB(12));
  EXPECT_EQ(machine->used(machine.sim(1)), KiB(8));
}

TEST(Reservations, FreeSpaceAloneEvictsNothingAndEvictionWaitsForNoThread) {
  Machine machine({.budget = KiB(16)});
  Block* block = machine.make(machine.sim(), pattern(3 * kSize, 1)).value();
  EXPECT_EQ(machine->evictor().reserve(machine.sim(), KiB(8), Reserve::free_only).status().code(),
            Code::busy);
  EXPECT_EQ(machine->stats().evictions, 0);
  EXPECT_TRUE(machine->evictor().reserve(machine.sim(), KiB(8), Reserve::may_evict).ok());
  EXPECT_EQ(machine->stats().evictions, 1);
  // Another thread's operator holds the space.
  Access access{.block = block};
  const NodeAdmission scope = machine.engine().admit(machine.sim(), block->size());
  ASSERT_TRUE(machine->acquire(machine.sim(), std::span(&access, 1)).ok());
  std::thread([&] {
    EXPECT_EQ(machine->evictor().reserve(machine.sim(), KiB(8), Reserve::may_evict).status().code(),
              Code::busy);
  }).join();
  machine->release(machine.sim(), std::span(&access, 1));
  machine->destroy(block);
}

TEST(Reservations, TheOuterOneIsArmedAgainAfterAnInnerOne) {
  Machine machine({.accelerators = 2});
  Reservation outer = machine->evictor().reserve(machine.sim(0), KiB(8), Reserve::free_only).value();
  Reservation inner = machine->evictor().reserve(machine.sim(1), KiB(8), Reserve::free_only).value();
  const ArmedReservation armed(outer);
  {
    const ArmedReservation nested(inner);
    Result<Memory> memory = machine->device(machine.sim(1)).allocate(KiB(8));
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(inner.left(), Bytes(0));
  }
  Result<Memory> memory = machine->device(machine.sim(0)).allocate(KiB(8));
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(outer.left(), Bytes(0));
  EXPECT_EQ(machine->used(machine.sim(0)), KiB(8)) << "charged once";
}

}  // namespace
}  // namespace innkeeper::test
