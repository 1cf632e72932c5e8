// Exceptions in the middle of the engine's work, and devices that go on failing: no thread waits for ever
// afterwards, and nothing is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/at_points.h"
#include "support/block_locations.h"
#include "support/machine.h"
#include "support/soon.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

// Throws at one of the engine's test points while it lives.
class ThrowsAt {
 public:
  explicit ThrowsAt(const char* point)
      : points_([point](const char* name) {
          if (std::strcmp(name, point) == 0) throw std::runtime_error("in the middle");
        }) {}

 private:
  const AtPoints points_;
};

TEST(InTheMiddle, AnExceptionDuringABudgetsEvictionsRestoresTheOneBefore) {
  Machine machine({.budget = Bytes(8 * kSize)});
  Block* block = machine.make(machine.sim(), pattern(kSize, 2)).value();
  {
    const ThrowsAt point("victim");
    EXPECT_THROW((void)machine->set_budget(machine.sim(), Bytes(kSize / 2)), std::runtime_error);
  }
  EXPECT_EQ(machine->budget(machine.sim()), Bytes(8 * kSize));
  EXPECT_TRUE(machine->set_budget(machine.sim(), Bytes(kSize / 2)).ok()) << "no change is under way";
  EXPECT_EQ(machine.read(*block, machine.host()).value(), pattern(kSize, 2));
  machine->destroy(block);
}

TEST(InTheMiddle, AnExceptionAfterALandingLeavesNoMemoryVacating) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.accelerators = 0, .host_budget = Bytes(2 * kSize), .disk_budget = MiB(4)});
  Block* first = machine.make(machine.host(), pattern(kSize, 1)).value();
  Block* second = machine.make(machine.host(), pattern(kSize, 2)).value();
  {
    const ThrowsAt point("landed");
    EXPECT_THROW((void)machine->requests().evict(*first), std::runtime_error);
  }
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_TRUE(machine->device(machine.host()).allocate(Bytes(2 * kSize)).ok());
  EXPECT_EQ(machine.read(*first, machine.host()).value(), pattern(kSize, 1));
  EXPECT_EQ(machine.read(*second, machine.host()).value(), pattern(kSize, 2));
  destroy(machine, {first, second});
}

TEST(InTheMiddle, AnExceptionInAWaitLeavesNoOperatorStuck) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.budget = Bytes(8 * kSize)});
  std::atomic<bool> runs = false;
  std::thread other([&] {
    const NodeAdmission admission = machine->admit(machine.sim(), Bytes(0));
    const Memory memory = machine->device(machine.sim()).allocate(Bytes(3 * kSize)).value();
    runs = true;
    while (runs) std::this_thread::yield();
  });
  ASSERT_TRUE(soon([&] { return runs.load(); }));
  {
    const NodeAdmission mine = machine->admit(machine.sim(), Bytes(0));
    const ThrowsAt point("wait");
    EXPECT_THROW((void)machine->device(machine.sim()).allocate(Bytes(6 * kSize)), std::runtime_error);
  }
  runs = false;
  other.join();
  EXPECT_EQ(machine->table().node(machine.sim()).stuck, 0);
}

TEST(InTheMiddle, AnExceptionDuringAFetchLeavesTheOperandWhereItWas) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.budget = Bytes(kSize)});
  Block* operand = machine.make(machine.sim(), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().evict(*operand).ok());
  Block* victim = machine.make(machine.sim(), pattern(kSize, 2)).value();
  {
    const ThrowsAt point("victim");
    EXPECT_THROW((void)machine.read(*operand, machine.sim()), std::runtime_error);
  }
  EXPECT_EQ(machine->check_invariants(), "");
  EXPECT_EQ(machine.read(*operand, machine.sim()).value(), pattern(kSize, 1));
  EXPECT_EQ(machine.read(*victim, machine.sim()).value(), pattern(kSize, 2));
  destroy(machine, {operand, victim});
}

// Each failed write frees nothing, and the block is a victim again: the search must end.
TEST(InTheMiddle, ADiskThatFailsEveryWriteEndsTheSearch) {
  static std::atomic<bool> fails;
  for (int64_t asked = 1; asked <= 4; ++asked) {
    const Watchdog watchdog(std::chrono::seconds(30));
    fails = false;
    MachineOptions options{.accelerators = 0, .host_budget = Bytes(4 * kSize), .disk_budget = MiB(4)};
    options.disk_calls.write = [](int file, const void* data, size_t size, off_t offset) -> ssize_t {
      if (!fails) return ::pwrite(file, data, size, offset);
      errno = ENOSPC;
      return -1;
    };
    Machine machine(options);
    std::vector<Block*> blocks;
    for (size_t i = 0; i < 4; ++i) blocks.push_back(machine.make(machine.host(), pattern(kSize, i)).value());
    fails = true;
    const Bytes size(asked * static_cast<int64_t>(kSize));
    EXPECT_FALSE(machine->device(machine.host()).allocate(size).ok());
    EXPECT_FALSE(machine->evictor().relieve(machine.host(), size).ok());
    EXPECT_FALSE(machine->set_budget(machine.host(), Bytes(4 * kSize) - size + Bytes(1)).ok());
    fails = false;
    EXPECT_EQ(machine->check_invariants(), "");
    EXPECT_TRUE(machine->device(machine.host()).allocate(size).ok()) << "the disk works again";
    for (size_t i = 0; i < blocks.size(); ++i)
      EXPECT_EQ(machine.read(*blocks[i], machine.host()).value(), pattern(kSize, i));
    destroy(machine, blocks);
  }
}

}  // namespace
}  // namespace innkeeper::test
