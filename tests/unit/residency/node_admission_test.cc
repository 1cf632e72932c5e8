// Admission of operators on nodes that are short of free space.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "support/filled.h"
#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

TEST(NodeAdmission, OperatorsAreAdmittedOneByOneOnceANodeIsHalfFull) {
  Machine machine({.budget = Bytes(4 * kSize)});
  const NodeId node = machine.sim();
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  const auto run_two = [&] {
    most = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 20; ++round) {
          const NodeAdmission scope = machine.engine().admit(node, Bytes(0));
          const NodeAdmission nested = machine.engine().admit(node, Bytes(0));
          const int now = ++inside;
          if (most.load() < now) most = now;
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          --inside;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  run_two();
  EXPECT_GT(most.load(), 1) << "there is room: nobody waits";
  const std::vector<Block*> blocks = fill(machine, node, 3);
  run_two();
  EXPECT_EQ(most.load(), 1);
  for (Block* block : blocks) machine->destroy(block);
}

// With accelerators present the host computes only the operators that they lack. Its operators still run one
// at a time on a contended node.
TEST(NodeAdmission, TwoOperatorsOnTheHostThatFitAloneBothFit) {
  Machine machine({.budget = Bytes(8 * kSize), .host_budget = Bytes(8 * kSize)});
  const Watchdog watchdog(std::chrono::seconds(30));
  const std::vector<Block*> blocks = fill(machine, machine.sim(), 6);
  std::atomic<int> inside{0};
  machine.set_pause(
      [&] {  // Called inside a kernel that has its scratch memory and needs space for its result.
        ++inside;
        for (int i = 0; i < 100 && inside < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
  std::array<Result<Block*>, 2> made{Result<Block*>(nullptr), Result<Block*>(nullptr)};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      std::vector<Access> accesses;
      for (size_t k = 0; k < 3; ++k) accesses.push_back({.block = blocks[3 * i + k]});
      made[i] = machine.run_for_result(machine.host(), accesses, Bytes(2 * kSize), Bytes(kSize), [](auto) {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Result<Block*>& result : made) {
    ASSERT_TRUE(result.ok()) << result.status().message();
    machine->destroy(result.value());
  }
  check_and_destroy(machine, blocks, machine.sim());
}

}  // namespace
}  // namespace innkeeper::test
