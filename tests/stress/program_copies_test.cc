// Copies that several threads start without waiting (movement/program_copy.h), while other threads evict and
// read.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "residency/movement/program_copy.h"
#include "support/machine.h"

namespace innkeeper::test {
namespace {

constexpr uint64_t kRounds = 300;

class ProgramCopyStress : public testing::Test {
 protected:
  void SetUp() override {
    evictor_ = std::thread([this] {
      while (!over_.load()) (void)machine_->evictor().evict_all();
    });
  }
  void TearDown() override {
    over_ = true;
    evictor_.join();
    EXPECT_EQ(machine_->check_invariants(), "");
  }

  Machine machine_{{.budget = KiB(64)}};
  const NodeId node_ = machine_.sim();
  std::atomic<bool> over_ = false;
  std::thread evictor_;
};

TEST_F(ProgramCopyStress, BatchesAndResultsOfThreadsKeepTheirBytes) {
  std::vector<std::thread> programs;
  for (uint64_t thread = 0; thread < 3; ++thread) {
    programs.emplace_back([this, thread] {
      Contents result(kSize);
      for (uint64_t i = 0; i < kRounds; ++i) {
        Contents batch = pattern(kSize, 3 * i + thread);
        Block* block = machine_->create(Bytes(kSize));
        ASSERT_TRUE(machine_.copy(node_, *block, Queue::copy_in, batch.data()).ok());
        ASSERT_TRUE(machine_.copy(node_, *block, Queue::copy_out, result.data()).ok());
        const Result<Contents> seen = machine_.read(*block, node_);
        ASSERT_TRUE(seen.ok()) << seen.status().message();
        EXPECT_EQ(seen.value(), batch);
        machine_->destroy(block);
        ASSERT_TRUE(machine_->synchronize().ok());
        EXPECT_EQ(result, batch);
      }
    });
  }
  for (std::thread& program : programs) program.join();
}

TEST_F(ProgramCopyStress, ThreadsCopyOneBlockOutAndReadIt) {
  Block* block = machine_.make(node_, pattern(kSize, 7)).value();
  std::vector<std::thread> programs;
  for (int thread = 0; thread < 3; ++thread) {
    programs.emplace_back([this, block] {
      std::array<Contents, 4> results;
      for (Contents& result : results) result.resize(kSize);
      for (uint64_t i = 0; i < kRounds; ++i) {
        ASSERT_TRUE(machine_.copy(node_, *block, Queue::copy_out, results[i % results.size()].data()).ok());
        const Result<Contents> seen = machine_.read(*block, node_);
        ASSERT_TRUE(seen.ok()) << seen.status().message();
        EXPECT_EQ(seen.value(), pattern(kSize, 7));
      }
      ASSERT_TRUE(machine_->synchronize().ok());
      for (const Contents& result : results) EXPECT_EQ(result, pattern(kSize, 7));
    });
  }
  for (std::thread& program : programs) program.join();
  machine_->destroy(block);
}

}  // namespace
}  // namespace innkeeper::test
