// Holds distinguish writers from readers; a thread that would wait for its own pin gets an error at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "support/at_points.h"
#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

// A prefetch to a peer, to the host or to a disk while an operator of another thread writes the block.
enum class Target { peer, host, disk };

class WriterTest : public testing::TestWithParam<Target> {};

TEST_P(WriterTest, AHintWaitsForTheOperatorThatWrites) {
  Machine machine({.accelerators = GetParam() == Target::disk ? 0u : 2u, .disk_budget = MiB(1)});
  const Watchdog watchdog(std::chrono::seconds(30));
  const NodeId writes_at = GetParam() == Target::disk ? machine.host() : machine.sim(0);
  const NodeId to = GetParam() == Target::disk   ? machine.disk()
                    : GetParam() == Target::host ? machine.host()
                                                 : machine.sim(1);
  Block* block = machine.make(writes_at, pattern(kSize, 1)).value();
  const Contents written = pattern(kSize, 2);
  std::atomic<bool> waits = false;
  const AtPoints points([&](const char* name) {
    if (std::strcmp(name, "wait") == 0) waits = true;
    std::this_thread::yield();
  });
  std::string broken;
  Status hinted;
  std::thread hint;
  const Status ran = machine.run(writes_at, {{.block = block, .write = true}}, [&](auto operands) {
    const auto half = static_cast<std::ptrdiff_t>(kSize / 2);
    std::copy(written.begin(), written.begin() + half, operands[0].begin());
    hint = std::thread([&] { hinted = machine->requests().prefetch(*block, to); });
    while (!waits) std::this_thread::yield();
    broken = machine->check_invariants();
    std::copy(written.begin() + half, written.end(), operands[0].begin() + half);
  });
  hint.join();
  ASSERT_TRUE(ran.ok()) << ran.message();
  ASSERT_TRUE(hinted.ok()) << hinted.message();
  EXPECT_EQ(broken, "");
  if (GetParam() == Target::peer) {
    EXPECT_TRUE(machine.read(*block, to).value() == written);
  }
  EXPECT_TRUE(machine.read(*block, writes_at).value() == written);
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

INSTANTIATE_TEST_SUITE_P(Targets, WriterTest, testing::Values(Target::peer, Target::host, Target::disk));

TEST(Hold, AThreadThatWouldWaitForItselfFailsAtOnce) {
  Machine machine({.accelerators = 2});
  const Watchdog watchdog(std::chrono::seconds(20));
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().hold(*block, machine.host(), /*write=*/false).ok());
  const Status elsewhere = machine.write(*block, machine.sim(0), pattern(kSize, 2));
  EXPECT_EQ(elsewhere.code(), Code::invalid_argument);
  EXPECT_NE(elsewhere.message().find("this thread works on the block itself at host"), std::string::npos);
  EXPECT_TRUE(machine.read(*block, machine.sim(1)).ok()) << "reading needs no wait";
  Access access = machine->release_hold(*block, machine.host());
  EXPECT_FALSE(access.write);
  machine->release(machine.host(), std::span(&access, 1));

  ASSERT_TRUE(machine->requests().hold(*block, machine.sim(0), /*write=*/true).ok());
  for (const Status& refused :
       {machine.read(*block, machine.sim(1)).status(), machine->requests().evict(*block),
        machine->requests().prefetch(*block, machine.sim(1)), machine->requests().write_back(*block)}) {
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_NE(refused.message().find("innkeeper.resident()"), std::string::npos) << refused.message();
  }
  EXPECT_EQ(machine->check_invariants(), "");
  access = machine->release_hold(*block, machine.sim(0));
  EXPECT_TRUE(access.write);
  machine->release(machine.sim(0), std::span(&access, 1));
  EXPECT_TRUE(machine.write(*block, machine.sim(1), pattern(kSize, 3)).ok());
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

TEST(Hold, AnotherThreadsHoldIsWaitedFor) {
  Machine machine({.accelerators = 2});
  const Watchdog watchdog(std::chrono::seconds(20));
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  std::atomic<bool> waits = false;
  ASSERT_TRUE(machine->requests().hold(*block, machine.sim(0), /*write=*/true).ok());
  const AtPoints points([&](const char* name) {
    if (std::strcmp(name, "wait") == 0) waits = true;
    std::this_thread::yield();
  });
  Result<Contents> seen = Contents();
  std::thread reader([&] { seen = machine.read(*block, machine.sim(1)); });
  while (!waits) std::this_thread::yield();
  Access access;
  // Released on another thread.
  std::thread([&] { access = machine->release_hold(*block, machine.sim(0)); }).join();
  machine->release(machine.sim(0), std::span(&access, 1));
  reader.join();
  ASSERT_TRUE(seen.ok()) << seen.status().message();
  EXPECT_TRUE(seen.value() == pattern(kSize, 1));
  machine->destroy(block);
}

// The engine cannot know when the holder releases escaped memory.
TEST(Hold, WhatHasEscapedIsNotWaitedFor) {
  Machine machine({.accelerators = 2});
  const Watchdog watchdog(std::chrono::seconds(20));
  machine->set_observers({.escapes = [](Block&, NodeId) { return true; }});
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  Access access{.block = block, .write = true};
  ASSERT_TRUE(machine->acquire(machine.sim(0), std::span(&access, 1)).ok());
  machine->keep_escaped(machine.sim(0), access);
  const Status refused = machine.write(*block, machine.sim(1), pattern(kSize, 2));
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("is still held by somebody"), std::string::npos) << refused.message();
  EXPECT_TRUE(machine.read(*block, machine.sim(1)).value() == pattern(kSize, 1));
  EXPECT_EQ(machine->check_invariants(), "");
  machine->set_observers({.escapes = [](Block&, NodeId) { return false; }});
  EXPECT_TRUE(machine.write(*block, machine.sim(1), pattern(kSize, 2)).ok());
  machine->destroy(block);
}

TEST(Pins, UnpinTakesBackTheLastPin) {
  Machine machine({.accelerators = 3});
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  for (const size_t index : {1, 0, 2, 0})
    ASSERT_TRUE(machine->requests().pin(*block, machine.sim(index)).ok());
  const auto pins = [&] {
    std::vector<uint32_t> found;
    for (size_t i = 0; i < 3; ++i) found.push_back(block->replica(machine.sim(i)).user_pins);
    return found;
  };
  EXPECT_EQ(pins(), (std::vector<uint32_t>{2, 1, 1}));
  machine->requests().unpin(*block);
  EXPECT_EQ(pins(), (std::vector<uint32_t>{1, 1, 1}));
  machine->requests().unpin(*block);
  EXPECT_EQ(pins(), (std::vector<uint32_t>{1, 1, 0}));
  machine->requests().unpin(*block);
  EXPECT_EQ(pins(), (std::vector<uint32_t>{0, 1, 0}));
  EXPECT_TRUE(machine->requests().is_pinned(*block));
  machine->requests().unpin(*block);
  EXPECT_FALSE(machine->requests().is_pinned(*block));
  machine->requests().unpin(*block);  // One unpin more than pins has no effect.
  EXPECT_EQ(machine->check_invariants(), "");
  machine->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
