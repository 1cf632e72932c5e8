// Copies that the program starts and does not wait for (movement/program_copy.h). They stay in order with
// the operators that touch the block: the simulator shows a missing wait. They run concurrently with all
// others: its clock shows that.
#include "residency/movement/program_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "support/machine.h"

namespace innkeeper {
namespace {

using test::Contents;
using test::Fault;
using test::FaultPlan;
using test::kSize;
using test::Machine;
using test::pattern;

constexpr cost::LinkModel kSlow{"slow", 4096, 0};  // One second for a block of kSize bytes.
constexpr unsigned kAnyFault = static_cast<unsigned>(Fault::allocation) | static_cast<unsigned>(Fault::copy) |
                               static_cast<unsigned>(Fault::order);

class ProgramCopies : public testing::Test {
 protected:
  static constexpr sim::QueueIndex kCompute = 0, kIn = 1, kOut = 2;
  static constexpr double kLong = 1.0;  // Seconds of a kernel; copies take some microseconds.

  explicit ProgramCopies(cost::LinkModel link = cost::default_host_link()) : machine_({.link = link}) {}
  void TearDown() override { EXPECT_EQ(machine_->check_invariants(), ""); }

  double time(sim::QueueIndex queue) { return machine_.gpu(node_)->time(queue); }
  Block* make(uint64_t version) { return machine_.make(node_, pattern(kSize, version)).value(); }
  Block* fresh() { return machine_->create(Bytes(kSize)); }
  void compute_for(double seconds) {
    machine_.gpu(node_)->begin_kernel(kCompute);
    machine_.gpu(node_)->end_kernel(
        kCompute, {}, {.flops = seconds * machine_.gpu(node_)->options().gpu.flops(cost::Precision::bf16)});
  }
  // Lets the engine record an event, which covers the work so far.
  void mark() {
    for (int i = 0; i < 32; ++i) machine_->destroy(make(99));
  }

  Status copy_in(Block& block, const Contents& from) {
    return machine_.copy(node_, block, Queue::copy_in, const_cast<unsigned char*>(from.data()));
  }
  Status copy_out(Block& block, Contents& to) {
    to.resize(kSize);
    return machine_.copy(node_, block, Queue::copy_out, to.data());
  }
  // Copies a block of make(1) out, and a batch into it after `between`. Each copy has its own bytes.
  template <class Between>
  void copy_out_and_in(Block* block, const Between& between) {
    const Contents batch = pattern(kSize, 77);
    Contents result;
    ASSERT_TRUE(copy_out(*block, result).ok());
    between();
    ASSERT_TRUE(copy_in(*block, batch).ok());
    machine_.gpu(node_)->synchronize(kIn);  // Ends the copy in at the earliest time that its waits allow.
    EXPECT_EQ(machine_.read(*block, node_).value(), batch);
    ASSERT_TRUE(machine_->synchronize().ok());
    EXPECT_EQ(result, pattern(kSize, 1));
    machine_->destroy(block);
  }

  Machine machine_;
  const NodeId node_ = machine_.sim();
};

class SlowProgramCopies : public ProgramCopies {
 protected:
  SlowProgramCopies() : ProgramCopies(kSlow) {}
};

TEST_F(ProgramCopies, ACopyIntoAFreshBlockWaitsForNoKernel) {
  const Contents batch = pattern(kSize, 1);
  compute_for(kLong);
  Block* block = fresh();
  ASSERT_TRUE(copy_in(*block, batch).ok());
  EXPECT_LT(time(kIn), kLong / 2);
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  machine_->destroy(block);
}

TEST_F(SlowProgramCopies, OperatorsOnOtherBlocksDoNotWaitForACopy) {
  const Contents batch = pattern(kSize, 1);
  Block* other = make(2);
  Block* block = fresh();
  ASSERT_TRUE(copy_in(*block, batch).ok());
  EXPECT_EQ(machine_.read(*other, node_).value(), pattern(kSize, 2));
  EXPECT_LT(time(kCompute), 0.5);
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  EXPECT_GE(time(kCompute), 1.0);
  for (Block* each : {other, block}) machine_->destroy(each);
}

TEST_F(ProgramCopies, MemoryOfAFreshBlockIsCopiedIntoAfterItsUserBefore) {
  const Contents batch = pattern(kSize, 1);
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 12; ++i) blocks.push_back(make(i));
  // The writes of these blocks are still hidden and come late.
  for (Block* block : blocks) machine_->destroy(block);
  Block* block = fresh();
  ASSERT_TRUE(copy_in(*block, batch).ok());
  machine_.gpu(node_)->synchronize(kIn);  // Ends the copy in at the earliest time after those writes.
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  machine_->destroy(block);
}

TEST_F(ProgramCopies, ACopyIntoABlockComesAfterItsWriter) {
  const Contents batch = pattern(kSize, 1);
  Block* block = make(2);
  ASSERT_TRUE(machine_.write(*block, node_, pattern(kSize, 3)).ok());
  ASSERT_TRUE(copy_in(*block, batch).ok());
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  machine_->destroy(block);
}

TEST_F(ProgramCopies, ACopyIntoABlockComesAfterItsReaderAndNotAfterLaterWork) {
  const Contents batch = pattern(kSize, 1);
  Block* block = make(2);
  mark();
  compute_for(kLong);
  ASSERT_TRUE(machine_.read(*block, node_).ok());
  mark();
  compute_for(kLong);
  ASSERT_TRUE(copy_in(*block, batch).ok());
  EXPECT_GE(time(kIn), kLong);
  EXPECT_LT(time(kIn), 1.5 * kLong);
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  machine_->destroy(block);
}

TEST_F(ProgramCopies, ACopyOutComesAfterTheWriterAndNotAfterLaterWork) {
  Block* block = make(1);
  mark();
  compute_for(kLong);
  Contents result;
  ASSERT_TRUE(copy_out(*block, result).ok());
  EXPECT_LT(time(kOut), kLong / 2);
  ASSERT_TRUE(machine_->synchronize().ok());
  EXPECT_EQ(result, pattern(kSize, 1));
  machine_->destroy(block);
}

TEST_F(SlowProgramCopies, ReadersDoNotWaitForACopyOutAndWritersDo) {
  Block* block = make(1);
  Contents result;
  ASSERT_TRUE(copy_out(*block, result).ok());
  EXPECT_EQ(machine_.read(*block, node_).value(), pattern(kSize, 1));
  EXPECT_LT(time(kCompute), 0.5);
  ASSERT_TRUE(machine_.write(*block, node_, pattern(kSize, 2)).ok());
  EXPECT_GE(time(kCompute), 1.0);
  EXPECT_EQ(machine_.read(*block, node_).value(), pattern(kSize, 2));
  ASSERT_TRUE(machine_->synchronize().ok());
  EXPECT_EQ(result, pattern(kSize, 1));
  machine_->destroy(block);
}

TEST_F(ProgramCopies, CopiesIntoAndOutOfABlockAreInOrder) {
  const Contents first = pattern(kSize, 1);
  const Contents second = pattern(kSize, 2);
  Contents seen_first, seen_second;
  Block* block = fresh();
  ASSERT_TRUE(copy_in(*block, first).ok());
  ASSERT_TRUE(copy_out(*block, seen_first).ok());
  ASSERT_TRUE(copy_in(*block, second).ok());
  ASSERT_TRUE(copy_out(*block, seen_second).ok());
  EXPECT_EQ(machine_.read(*block, node_).value(), second);
  ASSERT_TRUE(machine_->synchronize().ok());
  EXPECT_EQ(seen_first, first);
  EXPECT_EQ(seen_second, second);
  machine_->destroy(block);
}

TEST_F(ProgramCopies, ACopyIntoABlockComesAfterTheCopyOutOfIt) {
  copy_out_and_in(make(1), [] {});
}

TEST_F(ProgramCopies, ACopyOutOfEscapedMemoryComesAfterItsHoldersKernels) {
  Contents result;
  Block* block = make(1);
  machine_->set_observers({.escapes = [](Block&, NodeId) { return true; }});
  Access access{.block = block, .write = true};
  {
    const NodeAdmission scope = machine_.engine().admit(node_, Bytes(0));
    ASSERT_TRUE(machine_->acquire(node_, std::span(&access, 1)).ok());
    machine_->keep_escaped(node_, access);
  }
  mark();
  machine_.launch(node_, std::span(&access, 1), [](auto operands) {
    const Contents written = pattern(kSize, 2);
    std::copy(written.begin(), written.end(), operands[0].begin());
  });
  ASSERT_TRUE(copy_out(*block, result).ok());
  machine_.gpu(node_)->synchronize(kOut);  // Ends the copy out at the earliest time that its waits allow.
  EXPECT_EQ(result, pattern(kSize, 2));
  machine_->destroy(block);
}

// A writer between two copies takes their events; the copy after it must wait for them all the same.
TEST_F(ProgramCopies, ACopyIntoABlockComesAfterTheCopyOutThatAWriterWaitedFor) {
  Block* block = make(1);
  copy_out_and_in(block, [&] { EXPECT_TRUE(machine_.write(*block, node_, pattern(kSize, 2)).ok()); });
}

TEST_F(ProgramCopies, ACopyIntoASharedBlockComesAfterTheCopyOutOfIt) {
  Block* block = make(1);
  // The host has a replica too, so the next writer makes its own exclusive.
  ASSERT_TRUE(machine_->requests().write_back(*block).ok());
  copy_out_and_in(block, [&] { mark(); });
}

TEST_F(ProgramCopies, AnEvictedBlockTakesTheBytesOfACopyUnderWay) {
  const Contents batch = pattern(kSize, 1);
  Block* block = fresh();
  ASSERT_TRUE(copy_in(*block, batch).ok());
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  EXPECT_FALSE(machine_->table().has_replica(*block, node_));
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  machine_->destroy(block);
}

TEST_F(ProgramCopies, ABlockThatIsElsewhereIsFetchedFirst) {
  const Contents batch = pattern(kSize, 2);
  Contents result;
  Block* block = make(1);
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  ASSERT_TRUE(copy_out(*block, result).ok());
  ASSERT_TRUE(machine_->requests().evict(*block).ok());
  ASSERT_TRUE(copy_in(*block, batch).ok());
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  ASSERT_TRUE(machine_->synchronize().ok());
  EXPECT_EQ(result, pattern(kSize, 1));
  machine_->destroy(block);
}

TEST_F(ProgramCopies, MemoryOfABlockThatDiesIsReusedAfterTheCopyIntoIt) {
  const Contents batch = pattern(kSize, 1);
  for (uint64_t i = 0; i < 40; ++i) {
    Block* block = fresh();
    ASSERT_TRUE(copy_in(*block, batch).ok());
    machine_->destroy(block);
    Block* next = make(i);
    EXPECT_EQ(machine_.read(*next, node_).value(), pattern(kSize, i));
    machine_->destroy(next);
  }
}

TEST_F(ProgramCopies, MemoryOfAResultThatDiesIsReusedAfterTheCopyOutOfIt) {
  for (uint64_t i = 0; i < 40; ++i) {
    Contents result;
    Block* block = make(i);  // A fresh result, which no index lists yet.
    ASSERT_TRUE(copy_out(*block, result).ok());
    machine_->destroy(block);
    Block* next = make(1000);
    EXPECT_EQ(machine_.read(*next, node_).value(), pattern(kSize, 1000));
    machine_->destroy(next);
    ASSERT_TRUE(machine_->synchronize().ok());
    EXPECT_EQ(result, pattern(kSize, i));
  }
}

// Memory of a block that was pinned before an operator wrote it follows the order of the compute queue alone.
TEST_F(ProgramCopies, MemoryOfAPinnedBlockIsCopiedIntoAfterItsUserBefore) {
  const Contents batch = pattern(kSize, 1);
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 12; ++i) blocks.push_back(make(i));
  for (Block* block : blocks) machine_->destroy(block);
  Block* block = fresh();
  ASSERT_TRUE(machine_->requests().pin(*block, node_).ok());
  ASSERT_TRUE(copy_in(*block, batch).ok());
  machine_.gpu(node_)->synchronize(kIn);
  EXPECT_EQ(machine_.read(*block, node_).value(), batch);
  machine_->destroy(block);
}

TEST(ProgramCopyFaults, AfterAnyFailureTheBlockIsAsBeforeOrAsCopied) {
  const Contents before = pattern(kSize, 1);
  const Contents batch = pattern(kSize, 2);
  for (int64_t failing = 0; failing < 12; ++failing) {
    FaultPlan faults;
    Machine machine({.faults = &faults});
    const NodeId node = machine.sim();
    Block* kept = machine.make(node, before).value();
    Block* fresh = machine->create(Bytes(kSize));
    faults.arm(failing + 1, kAnyFault);
    for (Block* block : {kept, fresh}) {
      (void)machine.copy(node, *block, Queue::copy_in, const_cast<unsigned char*>(batch.data()));
    }
    faults.disarm();
    const Contents seen = machine.read(*kept, node).value();
    EXPECT_TRUE(seen == before || seen == batch) << "call " << failing;
    ASSERT_TRUE(machine.write(*fresh, node, before).ok());
    EXPECT_EQ(machine.read(*fresh, node).value(), before) << "call " << failing;
    EXPECT_EQ(machine->check_invariants(), "");
    for (Block* block : {kept, fresh}) machine->destroy(block);
  }
}

}  // namespace
}  // namespace innkeeper
