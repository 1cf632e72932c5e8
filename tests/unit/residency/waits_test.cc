// Threads that wait for memory at the same time: none waits for ever, and none gives up while another is
// about to free some.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "residency/movement/moving_scopes.h"
#include "support/at_points.h"
#include "support/block_locations.h"
#include "support/machine.h"
#include "support/soon.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

// A gate at which the disk's writes wait while it is closed.
std::atomic<bool> gate_closed{false};

DiskCalls calls_through_gate() {
  DiskCalls calls = DiskCalls::of_the_system();
  calls.write = [](int file, const void* data, size_t size, off_t offset) {
    (void)soon([] { return !gate_closed.load(); });
    return ::pwrite(file, data, size, offset);
  };
  return calls;
}

// Two operators fetch each a block that is leaving a full host, and need the memory that the other's block
// leaves: one of them must let go of its block.
TEST(Waits, TwoOperatorsDoNotWaitForEachOthersBlocks) {
  MachineOptions options{.accelerators = 2,
                         .budget = Bytes(kSize),
                         .host_budget = Bytes(2 * kSize),
                         .disk_budget = MiB(4),
                         .peers = false,
                         .host_computes = true,
                         .disk_calls = calls_through_gate()};
  Machine machine(options);
  const Watchdog watchdog(std::chrono::seconds(30));
  std::vector<Block*> dirty, leaving;
  for (size_t i = 0; i < 2; ++i) {
    dirty.push_back(machine.make(machine.sim(i), pattern(kSize, i)).value());
    leaving.push_back(machine.make(machine.host(), pattern(kSize, 2 + i)).value());
  }
  gate_closed = true;
  std::atomic<int> evicting = 0, fetching = 0;
  thread_local bool fetches = false;
  std::vector<std::thread> threads;
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait landing") != 0 && std::strcmp(name, "wait") != 0) return;
      if (fetches) {
        fetching.fetch_add(1);
        if (fetching.load() > 100) gate_closed = false;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      } else if (std::strcmp(name, "wait landing") == 0) {
        evicting.fetch_add(1);
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    for (Block* block : leaving)
      threads.emplace_back([&, block] { EXPECT_TRUE(machine->requests().evict(*block).ok()); });
    EXPECT_TRUE(soon([&] { return evicting.load() == 2; }));
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        fetches = true;
        const Result<Contents> seen = machine.read(*leaving[i], machine.sim(i));
        ASSERT_TRUE(seen.ok()) << seen.status().message();
        EXPECT_EQ(seen.value(), pattern(kSize, 2 + i));
      });
    }
    // Both fetch, and one waits: the disk may go on now.
    EXPECT_TRUE(soon([&] { return fetching.load() >= 2; }));
    gate_closed = false;
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(machine->check_invariants(), "");
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(machine.read(*dirty[i], machine.sim()).value(), pattern(kSize, i));
  destroy(machine, dirty);
  destroy(machine, leaving);
}

// An operator of another thread, from admit() until the test lets it end.
class OtherOperator {
 public:
  OtherOperator(Machine& machine, Block* operand, Bytes scratch)
      : OtherOperator(machine, machine.sim(), operand, scratch) {}
  OtherOperator(Machine& machine, NodeId at, Block* operand, Bytes scratch)
      : thread_([this, &machine, at, operand, scratch] {
          const NodeAdmission admission = machine->admit(at, Bytes(0));
          Access access{.block = operand};
          const size_t operands = operand != nullptr ? 1 : 0;
          IK_CHECK(machine->acquire(at, std::span(&access, operands)).ok());
          Memory memory;
          if (scratch != Bytes(0)) memory = machine->device(at).allocate(scratch).value();
          runs_ = true;
          while (runs_) std::this_thread::yield();
          memory.reset();
          machine->release(at, std::span(&access, operands));
        }) {
    while (!runs_) std::this_thread::yield();
  }
  ~OtherOperator() { end(); }
  OtherOperator(const OtherOperator&) = delete;
  OtherOperator& operator=(const OtherOperator&) = delete;
  void end() {
    runs_ = false;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> runs_{false};
  std::thread thread_;
};

// Its operand cannot leave when victims are looked for, and can a moment later, when no operator runs.
TEST(Waits, AnOperatorThatEndsDuringTheLastStepLeavesVictims) {
  Machine machine({.budget = Bytes(4 * kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  Block* operand = machine.make(machine.sim(), pattern(kSize, 1)).value();
  OtherOperator other(machine, operand, Bytes(0));
  Status status;
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "nothing leaves") == 0) other.end();
    });
    status = machine->device(machine.sim()).allocate(Bytes(4 * kSize)).status();
  }
  EXPECT_TRUE(status.ok()) << status.message();
  machine->destroy(operand);
}

// The host has no memory for the only victim, but an operator of another thread has memory that it frees.
TEST(Waits, AVictimThatCannotLeaveDoesNotHideWhatAnotherOperatorFrees) {
  Machine machine({.budget = Bytes(8 * kSize), .host_budget = Bytes(kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  Block* stays = machine.make(machine.sim(), pattern(2 * kSize, 1)).value();
  OtherOperator other(machine, nullptr, Bytes(kSize));
  Status status;
  bool waited = false;
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait") != 0) return;
      waited = true;
      other.end();
    });
    status = machine->device(machine.sim()).allocate(Bytes(6 * kSize)).status();
  }
  EXPECT_TRUE(waited);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(machine.read(*stays, machine.sim()).value(), pattern(2 * kSize, 1));
  machine->destroy(stays);
}

TEST(Waits, ADeviceWithoutMemoryWaitsForAnotherOperator) {
  Machine machine({.budget = Bytes(8 * kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  OtherOperator other(machine, nullptr, Bytes(kSize));
  int waits = 0;
  Status status;
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait") == 0 && ++waits == 100) other.end();
    });
    status = machine->evictor().relieve(machine.sim(), Bytes(kSize));
  }
  EXPECT_GE(waits, 100);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(machine->evictor().relieve(machine.sim(), Bytes(kSize)).code(), Code::out_of_memory);
}

// Calls `ours`. While it evicts its first victim another thread calls `theirs`, which waits or ends before
// the victim leaves.
void during_eviction(const std::function<void()>& ours, const std::function<void()>& theirs) {
  const std::thread::id self = std::this_thread::get_id();
  std::thread other;
  std::atomic<bool> goes_on = false;
  const AtPoints points([&](const char* name) {
    const bool mine = std::this_thread::get_id() == self;
    if (mine && std::strcmp(name, "victim") == 0 && !other.joinable()) {
      other = std::thread([&] {
        theirs();
        goes_on = true;
      });
      while (!goes_on) std::this_thread::yield();
    } else if (!mine && std::strcmp(name, "wait") == 0) {
      goes_on = true;
    }
  });
  ours();
  ASSERT_TRUE(other.joinable()) << "no victim was evicted";
  other.join();
}

// Each would restore the budget that the other had put in force.
TEST(Waits, TwoBudgetsThatCannotBeMetLeaveTheOneBefore) {
  Machine machine({.budget = Bytes(8 * kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  Block* pinned = machine.make(machine.sim(), pattern(3 * kSize, 1)).value();
  ASSERT_TRUE(machine->requests().pin(*pinned, machine.sim()).ok());
  Block* leaves = machine.make(machine.sim(), pattern(kSize, 2)).value();
  during_eviction([&] { EXPECT_FALSE(machine->set_budget(machine.sim(), Bytes(2 * kSize)).ok()); },
                  [&] { EXPECT_FALSE(machine->set_budget(machine.sim(), Bytes(kSize)).ok()); });
  EXPECT_EQ(machine->budget(machine.sim()), Bytes(8 * kSize));
  destroy(machine, {pinned, leaves});
}

// The request has marked the only block of the node, and waits for memory that an operator at the host frees.
TEST(Waits, AKernelWaitsForARequestThatWaitsForTheHost) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.budget = Bytes(kSize), .host_budget = Bytes(kSize), .host_computes = true});
  Block* block = machine.make(machine.sim(), pattern(kSize, 1)).value();
  OtherOperator other(machine, machine.host(), nullptr, Bytes(kSize));
  std::atomic<bool> evicts = false;
  std::atomic<int> kernel_waits = 0;
  static thread_local bool is_kernel = false;
  std::thread request;
  std::thread end;
  Status status;
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait") != 0) return;
      if (is_kernel) {
        kernel_waits.fetch_add(1);
      } else {
        evicts = true;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
    request = std::thread([&] { EXPECT_TRUE(machine->requests().evict(*block).ok()); });
    EXPECT_TRUE(soon([&] { return evicts.load(); }));
    end = std::thread([&] {
      (void)soon([&] { return kernel_waits.load() > 10; });
      other.end();
    });
    is_kernel = true;
    {
      const NodeAdmission admission = machine->admit(machine.sim(), Bytes(0));
      status = machine->device(machine.sim()).allocate(Bytes(kSize)).status();
    }
    is_kernel = false;
    end.join();
    request.join();
  }
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

// The operator has pins, and a kernel needs the memory of what it pins.
TEST(Waits, ReliefDoesNotLetAnOperatorWaitThatGathers) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.budget = Bytes(32 * kSize)});
  Block* operand = machine.make(machine.sim(), pattern(kSize, 1)).value();
  OtherOperator kernel(machine, nullptr, Bytes(8 * kSize));
  {
    const NodeAdmission admission = machine->admit(machine.sim(), Bytes(0));
    Access access{.block = operand};
    ASSERT_TRUE(machine->acquire(machine.sim(), std::span(&access, 1)).ok());
    Reservation reservation =
        machine->evictor().reserve(machine.sim(), Bytes(kSize), Reserve::may_evict).value();
    const ArmedReservation armed(reservation);
    EXPECT_EQ(machine->evictor().relieve(machine.sim(), Bytes(kSize)).code(), Code::busy);
    EXPECT_TRUE(armed.refused()) << "so that the operator begins again";
    machine->release(machine.sim(), std::span(&access, 1));
  }
  kernel.end();
  machine->destroy(operand);
}

// The operator's last operand is released between the search and the look at who runs.
TEST(Waits, ReliefLooksTwice) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.budget = Bytes(64 * kSize)});
  Block* operand = machine.make(machine.sim(), pattern(kSize, 1)).value();
  OtherOperator other(machine, operand, Bytes(0));
  const AtPoints points([&](const char* name) {
    if (std::strcmp(name, "nothing leaves") == 0) other.end();
  });
  const Status status = machine->evictor().relieve(machine.sim(), Bytes(kSize));
  EXPECT_TRUE(status.ok()) << status.message();
  machine->destroy(operand);
}

TEST(Waits, ABudgetThatCannotBeMetFailsNoOtherThreadsRequest) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.budget = Bytes(8 * kSize)});
  Block* pinned = machine.make(machine.sim(), pattern(2 * kSize, 1)).value();
  ASSERT_TRUE(machine->requests().pin(*pinned, machine.sim()).ok());
  Block* leaves = machine.make(machine.sim(), pattern(kSize, 2)).value();
  Status asked;
  during_eviction([&] { EXPECT_FALSE(machine->set_budget(machine.sim(), Bytes(kSize)).ok()); },
                  [&] { asked = machine->device(machine.sim()).allocate(Bytes(2 * kSize)).status(); });
  EXPECT_TRUE(asked.ok()) << asked.message();
  destroy(machine, {pinned, leaves});
}

// The request would fit the new budget, and not what is in use beside it; no move is under way any more.
TEST(Waits, ABudgetThatCannotBeMetIsWaitedForAlsoBetweenItsSteps) {
  const Watchdog watchdog(std::chrono::seconds(30));
  Machine machine({.budget = Bytes(8 * kSize)});
  Block* pinned = machine.make(machine.sim(), pattern(3 * kSize, 1)).value();
  ASSERT_TRUE(machine->requests().pin(*pinned, machine.sim()).ok());
  const std::thread::id self = std::this_thread::get_id();
  std::atomic<bool> budget_waits = false;
  std::atomic<bool> goes_on = false;
  Status asked;
  {
    const AtPoints points([&](const char* name) {
      if (std::strcmp(name, "wait") != 0) return;
      if (std::this_thread::get_id() == self) {
        goes_on = true;
      } else {
        budget_waits = true;
        while (!goes_on) std::this_thread::yield();
      }
    });
    std::thread other;
    {
      const NodeMovingScope moving(machine->table(), machine->table().node(machine.sim()));
      other = std::thread([&] { EXPECT_FALSE(machine->set_budget(machine.sim(), Bytes(2 * kSize)).ok()); });
      while (!budget_waits) std::this_thread::yield();
    }
    asked = machine->device(machine.sim()).allocate(Bytes(kSize)).status();
    goes_on = true;
    other.join();
  }
  EXPECT_TRUE(asked.ok()) << asked.message();
  machine->destroy(pinned);
}

}  // namespace
}  // namespace innkeeper::test
