// The n-th call to a device fails, for every n until a run is clean. After each failure every block keeps its
// bytes, the accounting equals a recount (I7), and the program goes on when the device does.
#include <gtest/gtest.h>

#include "support/machine.h"

namespace innkeeper::test {
namespace {

constexpr int64_t kForever = int64_t{1} << 40;

class FaultedProgram {
 public:
  explicit FaultedProgram(Machine& machine) : machine_(machine) {}

  // A fixed program that evicts, fetches, copies between accelerators and spills to disk. Returns its
  // failures.
  int run() {
    for (size_t i = 0; i < 6; ++i) make(i % 2, 3000 + 100 * i);
    for (size_t round = 0; round < 2; ++round) {
      for (size_t i = 0; i < blocks_.size(); ++i) {
        add(i, (i + 1) % blocks_.size(), (i + round) % 2);
        if (i == 1) step(machine_->requests().write_back(*blocks_[0].block));
        if (i == 2) step(machine_->requests().prefetch(*blocks_[4].block, machine_.sim(1)));
        if (i == 3) step(machine_->requests().evict(*blocks_[3].block));
      }
      step(machine_->evictor().evict_all());
      resize(2, 0);
      pin(1, 1);
      step(machine_->set_budget(machine_.sim(0), KiB(8)));
      step(machine_->set_budget(machine_.sim(0), KiB(12)));
    }
    return failures_;
  }

  // Without further failures, every block has the bytes of the last operator that succeeded.
  void check_contents() {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      for (size_t node = 0; node < 2 && !blocks_[i].contents.empty(); ++node) {
        Result<Contents> seen = machine_.read(*blocks_[i].block, machine_.sim(node));
        ASSERT_TRUE(seen.ok()) << seen.status().message();
        ASSERT_TRUE(seen.value() == blocks_[i].contents) << "block " << i << " at node " << node;
      }
    }
  }

  void destroy() {
    for (const Owned& owned : blocks_) machine_->destroy(owned.block);
    ASSERT_TRUE(machine_->synchronize().ok());
    EXPECT_EQ(machine_->check_invariants(), "");
    for (size_t node = 0; node < machine_->node_count(); ++node) {
      EXPECT_EQ(machine_->used(NodeId{static_cast<uint8_t>(node)}), Bytes(0)) << node;
    }
  }

 private:
  struct Owned {
    Block* block;
    Contents contents;  // Expected bytes; empty before the first write.
  };

  bool step(const Status& status) {
    if (!status.ok()) {
      ++failures_;
      EXPECT_NE(status.message(), "");
    }
    EXPECT_EQ(machine_->check_invariants(), "") << "after: " << status.message();
    return status.ok();
  }

  void make(size_t node, size_t size) {
    const Contents contents = pattern(size, ++versions_);
    Result<Block*> made = machine_.make(machine_.sim(node), contents);
    if (step(made.status())) {
      blocks_.push_back({made.value(), contents});
    } else {
      blocks_.push_back({machine_->create(Bytes(static_cast<int64_t>(size))), {}});
    }
  }

  void add(size_t target, size_t source, size_t node) {
    Owned& to = blocks_[target];
    const Owned& from = blocks_[source];
    if (to.contents.empty() || from.contents.empty()) return;
    const auto apply = [](std::span<unsigned char> a, std::span<const unsigned char> b) {
      for (size_t i = 0; i < a.size() && i < b.size(); ++i)
        a[i] = static_cast<unsigned char>((a[i] + b[i]) % 255);
    };
    const Status status =
        machine_.run(machine_.sim(node), {{.block = to.block, .write = true}, {.block = from.block}},
                     [&](auto operands) { apply(operands[0], operands[1]); });
    if (step(status)) apply(to.contents, from.contents);
  }

  void resize(size_t index, size_t node) {
    Owned& owned = blocks_[index];
    const NodeId at = machine_.sim(node);
    std::vector<Access> accesses{{.block = owned.block, .write = true}};
    const NodeAdmission scope = machine_.engine().admit(at, Bytes(0));
    if (!step(machine_->acquire(at, std::span(accesses)))) return;
    const Bytes size = owned.block->size() + Bytes(64);
    Result<Memory> memory = machine_->device(at).allocate(size);
    if (step(memory.status())) {
      owned.contents = pattern(static_cast<size_t>(size.count()), ++versions_);
      const sim::WrittenRange written{memory.value().data(), owned.contents.size()};
      machine_.gpu(at)->begin_kernel(0);
      std::copy(owned.contents.begin(), owned.contents.end(), static_cast<unsigned char*>(written.data));
      machine_.gpu(at)->end_kernel(0, std::span(&written, 1), {});
      machine_->replace(*owned.block, at, std::move(memory).value(), size);
    }
    machine_->release(at, std::span(accesses));
    step({});
  }

  void pin(size_t index, size_t node) {
    if (!step(machine_->requests().pin(*blocks_[index].block, machine_.sim(node)))) return;
    step(machine_->requests().evict(*blocks_[index].block));
    --failures_;  // The engine never evicts a pinned block.
    machine_->requests().unpin(*blocks_[index].block);
  }

  Machine& machine_;
  std::vector<Owned> blocks_;
  uint64_t versions_ = 0;
  int failures_ = 0;
};

struct FaultCase {
  const char* name;
  unsigned kinds;
  int64_t more = 0;  // Number of calls after it that fail too.
  bool peers = true;
};

constexpr unsigned kAll = 256 + 15;
constexpr auto kAllocation = static_cast<unsigned>(Fault::allocation);
constexpr auto kCopy = static_cast<unsigned>(Fault::copy);
constexpr auto kLateCopy = static_cast<unsigned>(Fault::late_copy);
constexpr auto kOrder = static_cast<unsigned>(Fault::order);
constexpr auto kEvent = static_cast<unsigned>(Fault::event);

class FaultTest : public testing::TestWithParam<FaultCase> {};

TEST_P(FaultTest, LeavesEveryBlockAndTheAccountingIntact) {
  const FaultCase& fault = GetParam();
  int64_t runs = 0;
  int64_t failures = 0;
  for (int64_t nth = 1;; ++nth) {
    SCOPED_TRACE("call " + std::to_string(nth) + " fails");
    FaultPlan plan;
    Machine machine({.accelerators = 2,
                     .budget = KiB(12),
                     .host_budget = KiB(14),
                     .disk_budget = MiB(1),
                     .peers = fault.peers,
                     .faults = &plan});
    FaultedProgram program(machine);
    plan.arm(nth, fault.kinds, fault.more);
    failures += program.run();
    plan.disarm();
    program.check_contents();
    program.destroy();
    ++runs;
    if (plan.hits() == 0 || HasFailure()) break;
  }
  EXPECT_GT(runs, 4) << "the program makes calls that can fail";
  EXPECT_GT(failures, 0) << "and some of them cannot be hidden";
}

const FaultCase kFaultCases[] = {
    {"AnAllocation", kAllocation},
    {"ACopy", kCopy},
    {"ACopyWithoutPeers", kCopy, 0, false},
    {"TheDiskLate", kLateCopy},
    {"TheDiskLateForever", kLateCopy, kForever},
    {"AWait", kOrder},
    {"EventsForever", kEvent, kForever},
    {"Anything", kAll},
    {"AnythingThreeTimes", kAll, 2},
    {"CopiesForever", kCopy, kForever, false},
    {"AllocationsForever", kAllocation, kForever},
    {"WaitsForever", kOrder, kForever},
};

INSTANTIATE_TEST_SUITE_P(Calls, FaultTest, testing::ValuesIn(kFaultCases),
                         [](const testing::TestParamInfo<FaultCase>& test) { return test.param.name; });

}  // namespace
}  // namespace innkeeper::test
