// A copy watch sees each of the engine's copies once, with its ends and its bytes.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

constexpr Bytes kWatched = KiB(16);

TEST(CopyWatch, SeesEachCopyWithItsEndsAndItsBytes) {
  Machine machine({.accelerators = 1, .budget = KiB(64), .host_budget = KiB(96), .disk_budget = MiB(1)});
  std::map<std::string, int64_t> bytes;
  machine->set_observers(
      {.copies = [&](const Device& from, const Device& to, Bytes size, const std::function<void()>& copy) {
        (void)machine->stats();  // The engine's lock is free.
        bytes[from.name() + ">" + to.name()] += size.count();
        copy();
      }});
  std::vector<Block*> blocks;
  for (int i = 0; i < 9; ++i) {
    blocks.push_back(machine->create(kWatched));
    EXPECT_TRUE(machine.run(machine.sim(), {{.block = blocks.back(), .write = true}}, [](auto) {}).ok());
  }
  for (Block* block : blocks) {
    EXPECT_TRUE(machine.run(machine.sim(), {{.block = block, .write = true}}, [](auto) {}).ok());
  }
  EXPECT_TRUE(machine->synchronize().ok());
  const Stats stats = machine->stats();
  EXPECT_EQ(bytes["host>sim:0"] + bytes["disk>host"], stats.bytes_fetched);
  EXPECT_EQ(bytes["sim:0>host"] + bytes["host>disk"], stats.bytes_written_back);
  EXPECT_GE(bytes["host>sim:0"], 5 * kWatched.count());
  EXPECT_EQ(machine->check_invariants(), "");
  for (Block* block : blocks) machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
