// The engine's access stream: touches of operators and ends of blocks. Records are read from it, and plans
// are made from it.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "support/machine.h"
#include "trace/recorder.h"

namespace innkeeper::test {
namespace {

constexpr Bytes kRecordedSize = KiB(4);

std::string number(const Block& block) { return std::to_string(static_cast<uint64_t>(block.id())); }

class RecordedTest : public testing::Test {
 protected:
  // An operator of that name at the GPU, whose kernel does nothing.
  void op(const char* name, std::vector<Access> accesses, const trace::Work& work = {}) {
    Engine& engine = machine_.engine();
    const NodeAdmission scope = engine.admit(gpu_, Bytes(0));
    ASSERT_TRUE(engine.acquire(gpu_, std::span(accesses)).ok());
    const bool named = name != nullptr && engine.plans().stream()->on();
    engine.release(gpu_, std::span(accesses),
                   named ? trace::Operation{engine.plans().stream()->name(name), work} : trace::Operation());
  }
  Machine machine_{{.budget = KiB(64), .visibility = sim::Visibility::early}};
  const NodeId gpu_ = machine_.sim();
  trace::Recorder recorder_{machine_->plans().stream()};
};

TEST_F(RecordedTest, OperatorsBirthsAndDeathsAreInARecord) {
  Block* const before = machine_->create(kRecordedSize);
  recorder_.start(100);
  op("fill", {{.block = before, .write = true}});
  Result<Memory> memory = machine_->device(gpu_).allocate(KiB(1));
  Block* const born = machine_->create(KiB(1));
  machine_->adopt(*born, gpu_, std::move(memory).value());
  std::vector<Access> accesses = {{.block = born, .pinned = true, .born = true}};
  machine_->release(gpu_, std::span(accesses),
                    {machine_->plans().stream()->name("make"), {.flops = 8, .bytes = 1024, .kernels = 2}});
  op("add", {{.block = before}, {.block = born, .write = true}, {.block = before}});
  const std::string a = number(*before);
  const std::string b = number(*born);
  machine_->destroy(born);
  recorder_.mark("step");
  machine_->destroy(before);
  EXPECT_EQ(recorder_.stop(), "O fill " + a + ":4096w\nO make =8,1024,2 " + b + ":1024o\nO add " + a +
                                  ":4096r " + b + ":1024w " + a + ":4096r\nF " + b + "\nM step\nF " + a +
                                  "\n");
}

// Accesses of a failed operator and of lent memory: the program called no operator that ended.
TEST_F(RecordedTest, WhatHasNoNameIsInNone) {
  Block* const block = machine_->create(kRecordedSize);
  recorder_.start(100);
  op(nullptr, {{.block = block, .write = true}});
  EXPECT_EQ(recorder_.stop(), "");
  machine_->destroy(block);
}

TEST_F(RecordedTest, NothingIsWrittenWithoutAReader) {
  Block* const block = machine_->create(kRecordedSize);
  op("write", {{.block = block, .write = true}});
  machine_->destroy(block);
  EXPECT_EQ(machine_->plans().stream()->rings(), 0u);
}

// A program that reads weights in a fixed order, more than fit, until the end of the first planned period.
// The test also reports its accesses by hand to a second planner outside the engine.
class Periods {
 public:
  explicit Periods(bool record) {
    trace::Recorder recorder(machine_->plans().stream());
    if (record) recorder.start(1'000'000);
    std::vector<Block*> weights;
    for (uint64_t i = 0; i < 20; ++i)
      weights.push_back(machine_.make(machine_.sim(), pattern(2048 + 512 * (i % 5), i)).value());
    for (int passes = 0; passes < 60 && machine_->plans().planning().periods == 0; ++passes) {
      for (size_t i = 0; i < weights.size(); ++i) {
        const Access weight{.block = weights[i]};
        Block* const result =
            machine_.run_for_result(machine_.sim(), {weight}, kRecordedSize, Bytes(0), [](auto) {}).value();
        told({weight, {.block = result}});
        const std::vector<Access> operands = {{.block = result}, {.block = weights[i], .write = i % 3 == 0}};
        EXPECT_TRUE(machine_.run(machine_.sim(), operands, [](auto) {}).ok());
        told(operands);
        by_hand.forget(names_.at(result));
        names_.erase(result);
        machine_->destroy(result);
      }
    }
    planned = machine_->plans().planning();
    for (Block* weight : weights) machine_->destroy(weight);
  }

  plan::Planner by_hand{[](NodeId) { return kBudget; }, {}};
  PlanningStats planned;

 private:
  void told(const std::vector<Access>& accesses) {
    std::vector<plan::Touch> touches;
    for (const Access& access : accesses) {
      plan::Name& name = names_[access.block];
      if (name == 0) name = by_hand.meet(nullptr);
      touches.push_back({name, access.block->size(), access.write});
    }
    by_hand.ended(machine_.sim(), touches);
    for (plan::Order order; by_hand.next(order);) {
    }
  }

  static constexpr Bytes kBudget = KiB(44);
  Machine machine_{{.budget = kBudget, .visibility = sim::Visibility::early}};
  std::map<const Block*, plan::Name> names_;
};

TEST(Recorded, PlansAreMadeOfWhatIsWrittenWhetherARecordIsOrNot) {
  for (const bool record : {false, true}) {
    const Periods made(record);
    const plan::PeriodCost& expected = made.by_hand.cost();
    EXPECT_EQ(made.planned.periods, made.by_hand.periods());
    EXPECT_EQ(made.planned.period.operators, expected.operators);
    EXPECT_EQ(made.planned.period.bytes_planned, expected.arriving.count());
    EXPECT_EQ(made.planned.period.bytes_bound, expected.bound.count());
    EXPECT_EQ(made.planned.period.bytes_short, expected.shortage.count());
    EXPECT_GT(made.planned.period.bytes_bound, 0);
  }
}

}  // namespace
}  // namespace innkeeper::test
