// Periodic programs, such as training, on an engine that plans their movement. Each operator sees the model's
// bytes, for any plan and any disturbance between the periods.
//
// The seeds are new in each run and printed. INNKEEPER_SEED replays one; INNKEEPER_PROGRAMS sets how many
// run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "support/environment.h"
#include "support/machine.h"
#include "support/watchdog.h"

namespace innkeeper::test {
namespace {

struct PeriodStep {
  std::vector<size_t> reads;   // Slots; those below `lasting` last.
  std::vector<size_t> writes;  // Lasting slots, changed in place.
  std::optional<size_t> makes;
  std::vector<size_t> frees;
  size_t scratch = 0;
};

struct Period {
  size_t lasting = 0;
  std::vector<size_t> sizes;  // Bytes of each slot.
  std::vector<PeriodStep> steps;
};

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(engine_); }
  bool one_in(size_t count) { return below(count) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Operators over weights and results; each result dies some operators later in the period.
Period random_period(Chance& chance) {
  Period period;
  period.lasting = 4 + chance.below(12);
  for (size_t i = 0; i < period.lasting; ++i) period.sizes.push_back(1 + chance.below(6000));
  std::vector<size_t> alive;
  const size_t length = 20 + chance.below(60);
  for (size_t i = 0; i < length; ++i) {
    PeriodStep step;
    const auto take = [&](std::vector<size_t>& from, size_t slot) {
      if (std::find(from.begin(), from.end(), slot) == from.end()) from.push_back(slot);
    };
    take(step.reads, i % 3 == 0 ? i / 3 % period.lasting : chance.below(period.lasting));
    for (size_t more = chance.below(3); more > 0 && !alive.empty(); --more)
      take(step.reads, alive[chance.below(alive.size())]);
    if (chance.one_in(3)) step.writes.push_back(chance.below(period.lasting));
    if (!step.writes.empty()) std::erase(step.reads, step.writes.front());
    if (!chance.one_in(4)) {
      step.makes = period.sizes.size();
      period.sizes.push_back(1 + chance.below(6000));
      if (chance.one_in(5)) step.scratch = 1 + chance.below(4000);
    }
    while (alive.size() > 6 || (!alive.empty() && chance.one_in(4))) {
      const size_t which = chance.below(alive.size());
      step.frees.push_back(alive[which]);
      alive.erase(alive.begin() + static_cast<int64_t>(which));
    }
    if (step.makes) alive.push_back(*step.makes);
    period.steps.push_back(step);
  }
  period.steps.back().frees.insert(period.steps.back().frees.end(), alive.begin(), alive.end());
  return period;
}

// One program on a machine, with the expected contents of each of its blocks.
class Going {
 public:
  Going(Machine& machine, const Period& period)
      : machine_(machine), period_(period), slots_(period.sizes.size()) {
    for (size_t i = 0; i < period.lasting; ++i) {
      slots_[i].contents = pattern(period.sizes[i], ++version_);
      slots_[i].block = machine_.make(machine_.sim(), slots_[i].contents).value();
    }
  }
  ~Going() {
    if (pinned_ != nullptr) machine_->requests().unpin(*pinned_);
    for (Slot& slot : slots_)
      if (slot.block != nullptr) machine_->destroy(slot.block);
  }
  Going(const Going&) = delete;
  Going& operator=(const Going&) = delete;

  void go(NodeId node) {
    for (size_t i = 0; i < period_.steps.size() && !testing::Test::HasFatalFailure(); ++i) step(i, node);
  }
  void step(size_t index, NodeId node) {
    const PeriodStep& step = period_.steps[index];
    std::vector<Access> accesses;
    for (const size_t slot : step.reads) accesses.push_back({slots_[slot].block, false});
    for (const size_t slot : step.writes) {
      accesses.push_back({slots_[slot].block, true});
      slots_[slot].contents = pattern(period_.sizes[slot], ++version_);
    }
    Contents made;
    if (step.makes) made = pattern(period_.sizes[*step.makes], ++version_);
    const auto kernel = [&](std::span<const std::span<unsigned char>> operands) {
      for (size_t i = 0; i < step.reads.size(); ++i) {
        const Contents& wanted = slots_[step.reads[i]].contents;
        ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), operands[i].begin()))
            << "slot " << step.reads[i] << " at step " << index;
      }
      for (size_t i = 0; i < step.writes.size(); ++i) {
        const Contents& written = slots_[step.writes[i]].contents;
        std::copy(written.begin(), written.end(), operands[step.reads.size() + i].begin());
      }
      if (step.makes) std::copy(made.begin(), made.end(), operands.back().begin());
    };
    if (step.makes) {
      Slot& slot = slots_[*step.makes];
      // The step was repeated: this is its earlier result.
      if (slot.block != nullptr) machine_->destroy(slot.block);
      slot.block = nullptr;
      const Bytes size(static_cast<int64_t>(made.size()));
      const Bytes scratch(static_cast<int64_t>(step.scratch));
      const Status ran = until_it_runs([&] {
        const Result<Block*> block = machine_.run_for_result(node, accesses, size, scratch, kernel);
        if (block.ok()) slot.block = block.value();
        return block.status();
      });
      ASSERT_TRUE(ran.ok()) << ran.message();
      slot.contents = made;
    } else {
      const Status ran = until_it_runs([&] { return machine_.run(node, accesses, kernel); });
      ASSERT_TRUE(ran.ok()) << ran.message();
    }
    if (pinned_ != nullptr) {
      ASSERT_TRUE(machine_->table().has_replica(*pinned_, machine_.sim())) << "what is pinned has left";
    }
    for (const size_t slot : step.frees) {
      machine_->destroy(slots_[slot].block);
      slots_[slot].block = nullptr;
    }
  }
  // One lasting block at a time stays where it is, against all plans.
  void pin_or_unpin(Chance& chance) {
    if (pinned_ != nullptr) machine_->requests().unpin(*pinned_);
    Block* const next = pinned_ == nullptr ? any(chance) : nullptr;
    pinned_ = next != nullptr && machine_->requests().pin(*next, machine_.sim()).ok() ? next : nullptr;
  }
  // A lasting block dies, and another one takes its place: the plans know only the dead one.
  void replace(Chance& chance) {
    Slot& slot = slots_[chance.below(period_.lasting)];
    if (slot.block == pinned_) return;
    machine_->destroy(slot.block);
    slot.block = machine_.make(machine_.sim(), slot.contents).value();
  }
  void unpin() {
    if (pinned_ != nullptr) machine_->requests().unpin(*pinned_);
    pinned_ = nullptr;
  }
  Block* any(Chance& chance) { return slots_[chance.below(period_.lasting)].block; }

 private:
  // A device's failure loses nothing: a retry of the operator succeeds.
  template <typename Operator>
  static Status until_it_runs(const Operator& run) {
    Status ran = run();
    for (int tries = 0; tries < 20 && !ran.ok(); ++tries) ran = run();
    return ran;
  }

  struct Slot {
    Block* block = nullptr;
    Contents contents;
  };
  Machine& machine_;
  const Period& period_;
  std::vector<Slot> slots_;
  Block* pinned_ = nullptr;
  uint64_t version_ = 0;
};

// Actions of a program, between two periods or within one, that no plan predicts.
constexpr size_t kDisturbances = 9;
void disturb(Machine& machine, Going& run, Chance& chance, size_t which) {
  switch (which) {
    case 0: run.step(0, machine.sim()); break;
    case 1: (void)machine->requests().evict(*run.any(chance)); break;
    case 2: (void)machine->requests().prefetch(*run.any(chance), machine.sim()); break;
    case 3: (void)machine->requests().write_back(*run.any(chance)); break;
    case 4: (void)machine->evictor().evict_all(); break;
    case 5:
    case 6: run.pin_or_unpin(chance); break;
    case 7: run.replace(chance); break;
    default:
      (void)machine->set_budget(machine.sim(), KiB(static_cast<int64_t>(40 + chance.below(40))));
      break;
  }
}

void one_program(uint64_t seed, int64_t& periods) {
  SCOPED_TRACE("INNKEEPER_SEED=" + std::to_string(seed));
  Chance chance(seed);
  MachineOptions options;
  options.budget = KiB(static_cast<int64_t>(36 + chance.below(30)));
  options.accelerators = 1 + chance.below(2);
  options.peers = chance.one_in(2);
  options.visibility =
      std::array{sim::Visibility::late, sim::Visibility::random, sim::Visibility::early}[chance.below(3)];
  options.seed = seed;
  FaultPlan faults;
  options.faults = &faults;
  const bool failing = chance.one_in(3);
  if (chance.one_in(3)) {
    if (chance.one_in(3)) options.accelerators = 0;  // The host computes.
    options.host_budget = KiB(static_cast<int64_t>((options.accelerators == 0 ? 36 : 20) + chance.below(60)));
    options.disk_budget = MiB(8);
  }
  Machine machine(options);
  const Period period = random_period(chance);
  {
    Going run(machine, period);
    for (int i = 0; i < 24; ++i) {
      if (failing) {
        const unsigned kinds[] = {unsigned(Fault::allocation), unsigned(Fault::copy), unsigned(Fault::order)};
        faults.arm(static_cast<int64_t>(1 + chance.below(60)), kinds[chance.below(3)],
                   static_cast<int64_t>(chance.below(3)));
      }
      run.go(machine.sim());
      faults.disarm();
      if (i > 14 && chance.one_in(3)) disturb(machine, run, chance, chance.below(kDisturbances));
      ASSERT_EQ(machine->check_invariants(), "");
      if (testing::Test::HasFatalFailure()) return;
    }
    periods += machine->plans().planning().periods;
  }
  ASSERT_TRUE(machine->synchronize().ok());
  EXPECT_EQ(machine->used(machine.sim()), Bytes(0));
}

TEST(Periods, SeeTheBytesOfTheModelWhateverIsPlanned) {
  const uint64_t one = from_environment("INNKEEPER_SEED", 0);
  const uint64_t seed = one != 0 ? one : std::random_device()();
  const uint64_t programs = one != 0 ? 1 : from_environment("INNKEEPER_PROGRAMS", 200);
  std::cout << "seeds from " << seed << "\n";
  int64_t periods = 0;
  for (uint64_t i = 0; i < programs && !HasFatalFailure() && !HasNonfatalFailure(); ++i)
    one_program(seed + i, periods);
  if (one == 0) {
    EXPECT_GT(periods, static_cast<int64_t>(programs)) << "hardly anything was planned";
  }
}

// At each operator of a period the test makes each disturbance: nothing is lost, and the engine follows the
// period again.
TEST(Periods, LoseNothingWhereverTheyAreLeft) {
  constexpr int kPatience = 8;  // periods
  Chance chance(3);
  const Period period = random_period(chance);
  Machine machine({.budget = KiB(30)});
  Going run(machine, period);
  const auto follow = [&] {
    for (int i = 0; i < kPatience && !machine->plans().planning().follows; ++i) run.go(machine.sim());
    return machine->plans().planning().follows;
  };
  run.go(machine.sim());
  ASSERT_TRUE(follow());
  for (size_t which = 0; which < kDisturbances; ++which) {
    for (size_t left_at = 0; left_at <= period.steps.size(); ++left_at) {
      SCOPED_TRACE(std::to_string(which) + " before step " + std::to_string(left_at));
      for (size_t i = 0; i < left_at; ++i) run.step(i, machine.sim());
      disturb(machine, run, chance, which);
      for (size_t i = left_at; i < period.steps.size(); ++i) run.step(i, machine.sim());
      if (HasFatalFailure()) return;
      ASSERT_EQ(machine->check_invariants(), "");
      run.unpin();
      ASSERT_TRUE(machine->set_budget(machine.sim(), KiB(30)).ok());
      run.go(machine.sim());
      ASSERT_TRUE(follow());
    }
  }
}

// Operators of other threads are not the program's: they neither end its periods nor touch freed blocks. A
// planned move never waits for them: on a full host they may be waiting for the planner.
TEST(Periods, GoOnBesideOtherThreads) {
  int64_t periods = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Chance chance(seed);
    MachineOptions options{.budget = KiB(72), .visibility = sim::Visibility::random, .seed = seed};
    const bool full_host = seed % 2 == 0;
    if (full_host) {
      options.host_budget = KiB(64);
      options.disk_budget = MiB(8);
      options.host_computes = true;
    }
    Machine machine(options);
    const Period period = random_period(chance);
    const Period other = random_period(chance);
    std::atomic<bool> over{false};
    std::thread beside([&] {
      Going run(machine, other);
      while (!over) run.go(full_host ? machine.host() : machine.sim());
    });
    {
      Going run(machine, period);
      std::thread hints([&] {  // A thread without a program gives hints about the program's blocks.
        Chance any(seed + 1000);
        while (!over) {
          Block& block = *run.any(any);
          if (any.one_in(3)) (void)machine->requests().evict(block);
          if (any.one_in(3)) (void)machine->requests().write_back(block);
          if (any.one_in(3)) (void)machine->requests().prefetch(block, machine.sim());
        }
      });
      for (int i = 0; i < 20 && !HasFatalFailure(); ++i) run.go(machine.sim());
      over = true;
      hints.join();
      beside.join();
    }
    ASSERT_EQ(machine->check_invariants(), "") << "seed " << seed;
    ASSERT_EQ(machine->table().block_count(), 0u);
    periods += machine->plans().planning().periods;
  }
  EXPECT_GT(periods, 0) << "no program was followed";
}

// The plan lets blocks leave for a host that has no free space, and another thread's operator runs there.
// That thread may be waiting to report to the planner the end of a block of this program.
TEST(Periods, WaitForNoOtherThread) {
  const Watchdog watchdog(std::chrono::seconds(60));
  Machine machine({.budget = KiB(36), .host_budget = KiB(64), .host_computes = true});
  std::vector<Block*> blocks;
  for (uint64_t i = 0; i < 10; ++i) blocks.push_back(machine.make(machine.sim(), pattern(4096, i)).value());
  const auto write = [&](uint64_t i) { (void)machine.write(*blocks[i], machine.sim(), pattern(4096, i)); };
  // A block that the other thread destroys in its operator once `ends_it` is true.
  std::atomic<Block*> given{nullptr};
  std::atomic<bool> ends_it{false}, in_operator{false};
  const auto pass = [&] {
    for (uint64_t i = 0; i < 10; ++i) write(i);
    Block* const next = machine.make(machine.sim(), pattern(1024, 40)).value();
    if (Block* const left = given.exchange(next)) machine->destroy(left);
  };
  Block* const small = machine.make(machine.host(), pattern(1024, 20)).value();
  std::atomic<bool> over{false};
  std::thread beside([&] {
    const auto slow = [&](auto) {
      in_operator = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      Block* const block = ends_it ? given.exchange(nullptr) : nullptr;
      if (block != nullptr) machine->destroy(block);
      in_operator = false;
    };
    while (!over) {
      (void)machine.run(machine.host(), {{.block = small, .write = true}}, slow);
      // Admission is not fair: other operators need it, too.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (uint64_t filled_before = 0; filled_before < 10; ++filled_before) {
    for (int i = 0; i < 60; ++i) pass();
    EXPECT_TRUE(machine->plans().planning().follows);
    for (uint64_t i = 0; i < filled_before; ++i) write(i);
    std::vector<Block*> full;  // Pinned blocks that leave less free space at the host than one block needs.
    std::thread([&] {          // A thread of its own, because its operators are not the program's.
      for (;;) {
        const Result<Block*> more = machine.make(machine.host(), pattern(2048, 30));
        if (!more.ok()) break;
        full.push_back(more.value());
        EXPECT_TRUE(machine->requests().pin(*full.back(), machine.host()).ok());
      }
    })
        .join();
    while (in_operator) std::this_thread::yield();
    ends_it = true;
    while (!in_operator) std::this_thread::yield();
    for (uint64_t i = filled_before; i < 10; ++i) write(i);
    ends_it = false;
    for (Block* block : full) {
      machine->requests().unpin(*block);
      machine->destroy(block);
    }
  }
  over = true;
  beside.join();
  if (Block* const left = given.exchange(nullptr)) machine->destroy(left);
  for (uint64_t i = 0; i < 10; ++i)
    EXPECT_EQ(machine.read(*blocks[i], machine.sim()).value(), pattern(4096, i));
  for (Block* block : blocks) machine->destroy(block);
  machine->destroy(small);
}

}  // namespace
}  // namespace innkeeper::test
