#include "residency/movement/pinned_copies.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "support/machine.h"

namespace innkeeper {
namespace {

class NeverDone final : public EventState {
 public:
  explicit NeverDone(int& asked) : asked_(asked) {}
  bool done() override {
    ++asked_;
    return false;
  }
  Status synchronize() override { return {}; }

 private:
  int& asked_;
};

class PinnedCopiesTest : public testing::Test {
 protected:
  PinnedCopiesTest() {
    machine_.gpu(node_)->begin_kernel(0);
    machine_.gpu(node_)->end_kernel(
        0, {}, {.flops = machine_.gpu(node_)->options().gpu.flops(cost::Precision::bf16)});
    after_a_second_ = machine_->device(node_).record(Queue::compute).value();
  }
  HostRange range(size_t begin, size_t end, bool written) { return {&bytes_[begin], end - begin, written}; }
  bool waits(const HostRange& range) {
    EXPECT_TRUE(copies_.order_after(machine_->device(node_), Queue::copy_in, range).ok());
    return machine_.gpu(node_)->time(1) > 0.5;
  }

  test::Machine machine_;
  const NodeId node_ = machine_.sim();
  std::array<char, 256> bytes_{};
  Event after_a_second_;
  PinnedCopies copies_;
};

TEST_F(PinnedCopiesTest, AReaderDoesNotWaitForAReader) {
  copies_.add(range(0, 128, false), after_a_second_);
  EXPECT_FALSE(waits(range(0, 128, false)));
}

TEST_F(PinnedCopiesTest, AReaderWaitsForAWriter) {
  copies_.add(range(0, 128, true), after_a_second_);
  EXPECT_TRUE(waits(range(0, 128, false)));
}

TEST_F(PinnedCopiesTest, AWriterWaitsForAReaderOfOneByte) {
  copies_.add(range(0, 128, false), after_a_second_);
  EXPECT_TRUE(waits(range(127, 200, true)));
}

TEST_F(PinnedCopiesTest, NeighboursDoNotWait) {
  copies_.add(range(64, 128, true), after_a_second_);
  EXPECT_FALSE(waits(range(128, 200, true)));
  EXPECT_FALSE(waits(range(0, 64, true)));
}

TEST_F(PinnedCopiesTest, OneInsideAnotherWaits) {
  copies_.add(range(0, 256, true), after_a_second_);
  EXPECT_TRUE(waits(range(100, 101, false)));
}

TEST_F(PinnedCopiesTest, CopiesThatAreDoneDoNotPileUp) {
  ASSERT_TRUE(machine_->synchronize().ok());
  for (int i = 0; i < 10'000; ++i) copies_.add(range(0, 1, true), after_a_second_);
  EXPECT_LE(copies_.size(), 64U);
}

TEST_F(PinnedCopiesTest, CopiesUnderWayAreAllKept) {
  int asked = 0;
  const auto under_way = std::make_shared<NeverDone>(asked);
  for (int i = 0; i < 10'000; ++i) copies_.add(range(0, 1, false), under_way);
  EXPECT_EQ(copies_.size(), 10'000U);
  EXPECT_LT(asked, 30'000);  // A new copy does not query all earlier ones.
}

}  // namespace
}  // namespace innkeeper
