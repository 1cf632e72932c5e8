// Copies wait for the events that they need, not for all launched work, and memory carries its users
// (docs/decisions/0004). The simulator's clock shows the times; its adversary shows a missing wait.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "support/machine.h"

namespace innkeeper {
namespace {

using test::Contents;
using test::FaultPlan;
using test::kSize;
using test::Machine;
using test::pattern;

constexpr sim::QueueIndex kCompute = 0, kIn = 1, kOut = 2;
constexpr double kLong = 1.0;  // Seconds of a kernel; copies take some microseconds.

void compute_for(sim::Accelerator& gpu, double seconds) {
  gpu.begin_kernel(kCompute);
  gpu.end_kernel(kCompute, {}, {.flops = seconds * gpu.options().gpu.flops(cost::Precision::bf16)});
}

class Overlap : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(machine_->check_invariants(), ""); }
  Block* make(uint64_t version) { return machine_.make(node_, pattern(kSize, version)).value(); }
  double time(sim::QueueIndex queue) { return machine_.gpu(node_)->time(queue); }

  // A block whose real memory has a holder until held_ is false.
  Block* make_escaped() {
    machine_->set_observers({.escapes = [this](Block&, NodeId) { return held_; }});
    Block* block = make(1);
    Access access{.block = block, .write = true};
    const NodeAdmission scope = machine_.engine().admit(node_, Bytes(0));
    EXPECT_TRUE(machine_->acquire(node_, std::span(&access, 1)).ok());
    machine_->keep_escaped(node_, access);
    return block;
  }
  // Writes like the holder: with a kernel that the engine does not see. Events are recorded before.
  void write_unseen(Block* block, const Contents& contents) {
    for (int i = 0; i < 64; ++i) machine_->destroy(make(9));
    const Access raw{.block = block, .write = true};
    machine_.launch(node_, std::span(&raw, 1),
                    [&](auto operands) { std::copy(contents.begin(), contents.end(), operands[0].begin()); });
  }

  Machine machine_;
  const NodeId node_ = machine_.sim();
  bool held_ = true;
};

TEST_F(Overlap, AFetchWaitsForNothingThatWasLaunchedSince) {
  Block* block = make(1);
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  compute_for(*machine_.gpu(node_), kLong);
  ASSERT_TRUE(machine_->requests().prefetch(*block, node_).ok());
  EXPECT_LT(time(kIn), kLong / 2);
  EXPECT_EQ(machine_.read(*block, node_).value(), pattern(kSize, 1));
  machine_->destroy(block);
}

TEST_F(Overlap, AnEvictionWaitsForItsWriterAlone) {
  Block* block = make(1);
  for (int i = 0; i < 32; ++i) machine_->destroy(make(2));  // Lets the engine record an event.
  compute_for(*machine_.gpu(node_), kLong);
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  EXPECT_LT(time(kOut), kLong / 2);
  EXPECT_EQ(machine_.read(*block, node_).value(), pattern(kSize, 1));
  machine_->destroy(block);
}

TEST_F(Overlap, KernelsDoNotWaitForAnEviction) {
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 8; ++i) blocks.push_back(make(i));
  const double before = time(kCompute);
  for (Block* block : blocks) ASSERT_TRUE(machine_->requests().evict(*block).ok());
  EXPECT_GT(time(kOut), before);
  EXPECT_EQ(time(kCompute), before);
  for (Block* block : blocks) machine_->destroy(block);
}

// An evicted block makes space for an arriving one: the copy in starts when the copy out has ended, and no
// sooner.
TEST_F(Overlap, MemoryIsFreeWhenTheCopyOutIsDone) {
  ASSERT_TRUE(machine_->set_budget(node_, Bytes(kSize)).ok());
  Block* first = make(1);
  Block* second = make(2);  // Evicts the first block.
  compute_for(*machine_.gpu(node_), kLong);
  ASSERT_TRUE(machine_->requests().prefetch(*first, node_).ok());  // Evicts the second block.
  EXPECT_GE(time(kIn), time(kOut));
  EXPECT_GE(time(kIn), kLong) << "no event was recorded before, and the writer of the second is not known";
  EXPECT_EQ(machine_.read(*first, node_).value(), pattern(kSize, 1));
  EXPECT_EQ(machine_.read(*second, node_).value(), pattern(kSize, 2));
  machine_->destroy(first);
  machine_->destroy(second);
}

// A clean block leaves without a copy, but not under the kernel that reads it.
TEST_F(Overlap, MemoryOfACleanBlockIsFreeWhenItsLastReaderIsDone) {
  ASSERT_TRUE(machine_->set_budget(node_, Bytes(kSize)).ok());
  Block* first = make(1);
  Block* second = make(2);                         // Evicts the first block.
  ASSERT_TRUE(machine_.read(*first, node_).ok());  // Evicts the second block; the first is clean now.
  compute_for(*machine_.gpu(node_), kLong);
  ASSERT_TRUE(machine_.read(*first, node_).ok());
  ASSERT_TRUE(machine_->requests().prefetch(*second, node_).ok());
  EXPECT_GE(time(kIn), kLong);
  machine_->destroy(first);
  machine_->destroy(second);
}

TEST_F(Overlap, WhatWasFetchedAndReadIsCopiedOutAsItCame) {
  Machine machine({.accelerators = 2});
  Block* block = machine.make(machine.sim(0), pattern(kSize, 1)).value();
  ASSERT_TRUE(machine->requests().evict(*block).ok());
  ASSERT_TRUE(machine.read(*block, machine.sim(0)).ok());  // The block's last writer here is the copy.
  ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok());
  EXPECT_EQ(machine.read(*block, machine.sim(1)).value(), pattern(kSize, 1));
  machine->destroy(block);
}

// A kernel gives bytes to a result that had none (out=).
TEST_F(Overlap, WhatAKernelResizesIsCopiedAfterIt) {
  Machine machine({.accelerators = 2});
  for (int i = 0; i < 64; ++i) {  // Lets the engine record events.
    machine->destroy(machine.make(machine.sim(0), pattern(kSize, 9)).value());
  }
  Block* block = machine->create(Bytes(0));
  {
    const NodeAdmission scope = machine.engine().admit(machine.sim(0), Bytes(0));
    Memory memory = machine->device(machine.sim(0)).allocate(Bytes(kSize)).value();
    const sim::WrittenRange written{memory.data(), kSize};
    machine.gpu(machine.sim(0))->begin_kernel(kCompute);
    const Contents contents = pattern(kSize, 1);
    std::copy(contents.begin(), contents.end(), static_cast<unsigned char*>(memory.data()));
    machine.gpu(machine.sim(0))->end_kernel(kCompute, std::span(&written, 1), {});
    machine->replace(*block, machine.sim(0), std::move(memory), Bytes(kSize));
  }
  EXPECT_EQ(machine.read(*block, machine.sim(1)).value(), pattern(kSize, 1));
  machine->destroy(block);
}

// A result may be fetched to another node while its operator is still under way: its kernel has no stamp
// then.
TEST_F(Overlap, AFreshResultIsCopiedAfterItsKernel) {
  Machine machine({.accelerators = 2});
  const NodeId node = machine.sim(0);
  for (int i = 0; i < 64; ++i) machine->destroy(machine.make(node, pattern(kSize, 9)).value());
  Block* block = machine->create(Bytes(kSize));
  {
    const NodeAdmission scope = machine.engine().admit(node, Bytes(0));
    Memory memory = machine->device(node).allocate(Bytes(kSize)).value();
    const sim::WrittenRange written{memory.data(), kSize};
    machine.gpu(node)->begin_kernel(kCompute);
    const Contents contents = pattern(kSize, 1);
    std::copy(contents.begin(), contents.end(), static_cast<unsigned char*>(memory.data()));
    machine.gpu(node)->end_kernel(kCompute, std::span(&written, 1), {});
    machine->adopt(*block, node, std::move(memory));
    ASSERT_TRUE(machine->requests().prefetch(*block, machine.sim(1)).ok());
    Access access{.block = block, .pinned = true, .born = true};
    machine->release(node, std::span(&access, 1));
  }
  EXPECT_EQ(machine.read(*block, machine.sim(1)).value(), pattern(kSize, 1));
  machine->destroy(block);
}

// The holder of escaped memory may write it at any time (I12).
TEST_F(Overlap, EscapedMemoryIsCopiedWithAllThatWasLaunched) {
  Block* block = make_escaped();
  const Contents theirs = pattern(kSize, 3);
  write_unseen(block, theirs);
  ASSERT_TRUE(machine_->requests().write_back(*block).ok());
  EXPECT_EQ(machine_.read(*block, machine_->host()).value(), theirs);
  held_ = false;
  EXPECT_EQ(machine_->stats().escaped, 0);
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  EXPECT_EQ(machine_.read(*block, node_).value(), theirs);
  machine_->destroy(block);
}

// The memory has escaped no longer, but its former holder may have written it since the last operator.
TEST_F(Overlap, MemoryThatHadEscapedIsCopiedWithAllThatWasLaunched) {
  Block* block = make_escaped();
  const Contents theirs = pattern(kSize, 3);
  write_unseen(block, theirs);
  held_ = false;
  EXPECT_EQ(machine_->stats().escaped, 0);
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  // Reads at the host: at the node the holder's kernel may land in the memory that the block gets there.
  EXPECT_EQ(machine_.read(*block, machine_->host()).value(), theirs);
  machine_->destroy(block);
}

// A refused copy leaves memory whose last user is not done.
TEST_F(Overlap, MemoryOfARefusedCopyKeepsItsUsers) {
  FaultPlan faults;
  Machine machine({.budget = Bytes(2 * kSize), .faults = &faults});
  Block* first = machine.make(node_, pattern(kSize, 1)).value();
  Block* second = machine.make(node_, pattern(kSize, 2)).value();
  ASSERT_TRUE(machine->requests().evict(*first).ok());
  ASSERT_TRUE(machine.read(*first, node_).ok());
  ASSERT_TRUE(machine->requests().evict(*second).ok());
  ASSERT_TRUE(
      machine->requests().evict(*first).ok());  // The copies out, in the memory of both, have not run yet.
  faults.arm(1, static_cast<unsigned>(test::Fault::copy));
  EXPECT_FALSE(machine->requests().prefetch(*first, node_).ok());
  faults.disarm();
  std::vector<Block*> others;
  for (uint64_t i = 3; i < 5; ++i) others.push_back(machine.make(node_, pattern(kSize, i)).value());
  EXPECT_EQ(machine.read(*second, node_).value(), pattern(kSize, 2));
  EXPECT_EQ(machine.read(*first, node_).value(), pattern(kSize, 1));
  for (Block* block : {first, second, others[0], others[1]}) machine->destroy(block);
}

TEST(Stamps, ManyOperatorsLeaveFewEvents) {
  const auto device = sim::make_device(std::make_shared<sim::Accelerator>(sim::Options{}));
  std::atomic<Stamp> clock{1};
  Stamps stamps(*device, clock);
  const std::weak_ptr<EventState> first = stamps.after(1).value();
  for (int i = 0; i < 100000; ++i) {
    ++clock;
    stamps.launched(Bytes(0));
  }
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(stamps.after(1).ok()) << "a later event stands in";
}

TEST_F(Overlap, ManyOperatorsLaterAnEvictionIsRight) {
  Block* block = make(1);
  for (int i = 0; i < 100000; ++i) {
    Access access{.block = block, .write = true};
    const NodeAdmission scope = machine_.engine().admit(node_, Bytes(0));
    ASSERT_TRUE(machine_->acquire(node_, std::span(&access, 1)).ok());
    machine_->release(node_, std::span(&access, 1));
  }
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  EXPECT_EQ(machine_.read(*block, node_).value(), pattern(kSize, 1));
  machine_->destroy(block);
}

}  // namespace
}  // namespace innkeeper
