// Random programs on the engine against a naive model: a map from block to bytes.
//
// Each step is one thing that a program or its user may do; after each the invariants are checked, and a
// kernel's view of its operands is compared with the model. Operations may fail for want of room only, and
// then change nothing.
//
// INNKEEPER_SEED replays one seed, INNKEEPER_STEPS sets the number of steps.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "support/environment.h"
#include "support/machine.h"

namespace innkeeper::test {
namespace {

struct WalkOptions {
  MachineOptions machine;
  size_t max_blocks = 24;
  int64_t max_size = 4500;  // so that three pinned blocks and three operands fit three quarters of the budget
  bool may_run_out = false;  // the machine is so small that requests may find no room
};

class Walk {
 public:
  Walk(const WalkOptions& options, uint64_t seed)
      : options_(options), random_(seed), machine_(options.machine) {}

  ~Walk() {
    for (auto& [block, model] : blocks_) machine_->destroy(block);
  }

  void run(uint64_t steps) {
    for (uint64_t step = 0; step < steps; ++step) {
      step_ = step;
      one_step();
      if (testing::Test::HasFailure()) return;
      const std::string broken = machine_->check_invariants();
      ASSERT_EQ(broken, "") << "after step " << step << " (" << what_ << ")";
    }
    for (auto& [block, model] : blocks_) check(*block, any_node());
    unpin_all();
    // Everything is given back: what is left is nobody's.
    while (!blocks_.empty()) destroy(blocks_.begin()->first);
    ASSERT_TRUE(machine_->synchronize().ok());
    EXPECT_EQ(machine_->check_invariants(), "");
    for (size_t i = 0; i < machine_->node_count(); ++i) {
      EXPECT_EQ(machine_->used(NodeId{static_cast<uint8_t>(i)}), Bytes(0)) << i;
    }
  }

  const Stats stats() { return machine_->stats(); }

 private:
  struct Model {
    Contents contents;
    int pins = 0;
    NodeId pinned_at = kNoNode;
    bool written = false;
  };

  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }
  NodeId any_node() { return machine_->computing_nodes()[below(machine_->computing_nodes().size())]; }
  Block* any_block() {
    auto entry = blocks_.begin();
    std::advance(entry, static_cast<long>(below(blocks_.size())));
    return entry->first;
  }
  Contents fresh(size_t size) { return pattern(size, ++versions_); }

  // A request may fail for want of room, and only where the machine is too small.
  bool done(const Status& status, bool may_refuse = false) {
    if (status.ok()) return true;
    const bool room = options_.may_run_out && status.code() == Code::out_of_memory;
    EXPECT_TRUE(room || (may_refuse && status.code() == Code::invalid_argument))
        << "step " << step_ << " (" << what_ << "): " << status.message();
    return false;
  }

  void one_step() {
    if (blocks_.size() < 4) return create();
    switch (below(16)) {
      case 0:
      case 1: what_ = "create"; return create();
      case 2: what_ = "write"; return write(*any_block(), any_node());
      case 3:
      case 4: what_ = "read"; return check(*any_block(), any_node());
      case 5:
      case 6:
      case 7: what_ = "combine"; return combine();
      case 8: what_ = "prefetch"; return prefetch();
      case 9: what_ = "evict"; return evict();
      case 10:
        what_ = "write back";
        done(machine_->write_back(*any_block()));
        return;
      case 11: what_ = "destroy"; return destroy_any();
      case 12: what_ = "pin"; return pin_or_unpin();
      case 13: what_ = "budget"; return change_budget();
      case 14: what_ = "resize"; return resize();
      case 15: what_ = "rare"; return rare();
    }
  }

  void create() {
    if (blocks_.size() >= options_.max_blocks) return;
    const size_t size = below(20) == 0 ? 0 : 1 + below(static_cast<size_t>(options_.max_size));
    if (size == 0 || below(3) == 0) {
      blocks_[machine_->create(Bytes(static_cast<int64_t>(size)))].contents.assign(size, 0);
      return;
    }
    const Contents contents = fresh(size);
    Result<Block*> made = machine_.make(any_node(), contents);
    if (done(made.status())) blocks_[made.value()] = {.contents = contents, .written = true};
  }

  void write(Block& block, NodeId node) {
    Model& model = blocks_.at(&block);
    Contents contents = fresh(model.contents.size());
    if (!done(machine_.write(block, node, contents), model.pins != 0)) return;
    model.contents = std::move(contents);
    model.written = true;
  }

  void check(Block& block, NodeId node) {
    const Model& model = blocks_.at(&block);
    if (!model.written) return;
    Result<Contents> seen = machine_.read(block, node);
    if (!done(seen.status())) return;
    compare(block, seen.value(), model.contents);
  }

  void compare(const Block& block, std::span<const unsigned char> seen, const Contents& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (seen[i] == wanted[i]) continue;
      ADD_FAILURE() << "step " << step_ << " (" << what_ << "): block " << static_cast<uint64_t>(block.id())
                    << " byte " << i << " of " << wanted.size() << " is " << int{seen[i]} << ", not "
                    << int{wanted[i]};
      return;
    }
  }

  // out = out * 3 + sum of inputs, with scratch memory and sometimes a new block as the result.
  void combine() {
    Block* out = any_block();
    std::vector<Access> accesses{{.block = out, .write = true}};
    for (size_t i = below(3); i-- > 0;) {
      Block* input = any_block();
      if (blocks_.at(input).written) accesses.push_back({.block = input});
    }
    const NodeId node = below(3) == 0 ? machine_->place(std::span(accesses), any_node()) : any_node();
    const bool scratch = below(3) == 0;
    Contents result = blocks_.at(out).contents;
    const auto apply = [](std::span<unsigned char> target, std::span<const unsigned char> input) {
      for (size_t i = 0; i < target.size() && i < input.size(); ++i) {
        target[i] = static_cast<unsigned char>((target[i] * 3 + input[i]) % 255);
      }
    };
    const bool fresh_start = !blocks_.at(out).written;
    const Status status = machine_.run(node, accesses, [&](auto operands) {
      if (scratch) {
        Result<Memory> memory = machine_->device(node).allocate(Bytes(static_cast<int64_t>(1 + below(2000))));
        if (memory.ok())
          std::memset(memory.value().data(), 3, static_cast<size_t>(memory.value().size().count()));
      }
      if (fresh_start) std::fill(operands[0].begin(), operands[0].end(), static_cast<unsigned char>(0));
      for (size_t i = 1; i < accesses.size(); ++i) {
        if (accesses[i].block != out)
          compare(*accesses[i].block, operands[i], blocks_.at(accesses[i].block).contents);
      }
      for (size_t i = 1; i < accesses.size(); ++i) apply(operands[0], operands[i]);
    });
    bool pinned_elsewhere = blocks_.at(out).pins != 0;
    if (!done(status, pinned_elsewhere)) return;
    for (size_t i = 1; i < accesses.size(); ++i) {
      apply(result, accesses[i].block == out ? result : blocks_.at(accesses[i].block).contents);
    }
    blocks_.at(out).contents = std::move(result);
    blocks_.at(out).written = true;
  }

  void prefetch() {
    done(machine_->prefetch(*any_block(), NodeId{static_cast<uint8_t>(below(machine_->node_count()))}));
  }

  void evict() {
    Block* block = any_block();
    if (done(machine_->evict(*block), blocks_.at(block).pins != 0)) {
      for (NodeId node : machine_->where(*block)) {
        EXPECT_EQ(machine_.card(node), nullptr) << "step " << step_;
      }
    }
  }

  void pin_or_unpin() {
    Block* block = any_block();
    Model& model = blocks_.at(block);
    if (model.pins > 0 || pinned_ > 2) {
      if (model.pins == 0) return;
      machine_->unpin(*block);
      --model.pins;
      --pinned_;
      return;
    }
    if (model.contents.empty()) return;
    const NodeId node = any_node();
    if (!done(machine_->pin(*block, node))) return;
    model.pins = 1;
    ++pinned_;
    model.pinned_at = node;
  }

  void unpin_all() {
    for (auto& [block, model] : blocks_) {
      for (; model.pins > 0; --model.pins) machine_->unpin(*block);
    }
    pinned_ = 0;
  }

  void change_budget() {
    const NodeId node = any_node();
    const int64_t full = machine_.card(node) != nullptr ? options_.machine.budget.count()
                                                        : options_.machine.host_budget.count();
    const Bytes before = machine_->budget(node);
    const Bytes wanted(full - static_cast<int64_t>(below(static_cast<size_t>(full) / 4)));
    const Status status = machine_->set_budget(node, wanted);
    if (status.ok()) {
      EXPECT_EQ(machine_->budget(node), wanted);
    } else {
      EXPECT_TRUE(status.code() == Code::out_of_memory) << status.message();
      EXPECT_TRUE(pinned_ > 0 || options_.may_run_out) << status.message();
      EXPECT_EQ(machine_->budget(node), before);
    }
  }

  // A kernel gives its operand other memory, as resize_ and out= do.
  void resize() {
    Block* block = any_block();
    Model& model = blocks_.at(block);
    const auto size = 1 + below(static_cast<size_t>(options_.max_size));
    if (!model.written && machine_->where(*block).empty()) {
      ASSERT_TRUE(machine_->resize_unwritten(*block, Bytes(static_cast<int64_t>(size))).ok());
      model.contents.assign(size, 0);
      return;
    }
    if (model.pins != 0) return;
    const NodeId node = any_node();
    std::vector<Access> accesses{{.block = block, .write = true}};
    const OperatorScope scope(machine_.engine(), node);
    if (!done(machine_->acquire(node, std::span(accesses)))) return;
    Result<Memory> memory = machine_->device(node).allocate(Bytes(static_cast<int64_t>(size)));
    if (done(memory.status())) {
      const Contents contents = fresh(size);
      sim::Accelerator* card = machine_.card(node);
      if (card != nullptr) card->begin_kernel(0);
      std::copy(contents.begin(), contents.end(), static_cast<unsigned char*>(memory.value().data()));
      const sim::WrittenRange written{memory.value().data(), size};
      if (card != nullptr) card->end_kernel(0, std::span(&written, 1), {});
      machine_->replace(*block, node, std::move(memory).value(), Bytes(static_cast<int64_t>(size)));
      model = {.contents = contents, .written = true};
    }
    machine_->release(node, std::span(accesses));
  }

  void destroy(Block* block) {
    machine_->destroy(block);
    if (blocks_.at(block).pins != 0) --pinned_;
    blocks_.erase(block);
  }
  void destroy_any() { destroy(any_block()); }

  void rare() {
    switch (below(4)) {
      case 0: done(machine_->evict_all()); return;
      case 1: EXPECT_TRUE(machine_->synchronize().ok()); return;
      case 2: machine_->trim(); return;
      case 3: {
        const Stats stats = machine_->stats();
        for (const auto& [name, row] : stats.nodes) EXPECT_EQ(row.resident, row.recount) << name;
      }
    }
  }

  const WalkOptions options_;
  std::mt19937_64 random_;
  Machine machine_;
  std::map<Block*, Model> blocks_;
  uint64_t versions_ = 0;
  uint64_t step_ = 0;
  int pinned_ = 0;
  const char* what_ = "create";
};

struct Case {
  const char* name;
  WalkOptions options;
};

const Case kCases[] = {
    {"OneAccelerator", {.machine = {.budget = KiB(36)}}},
    {"OneAcceleratorWithDisk",
     {.machine = {.budget = KiB(36), .host_budget = KiB(48), .disk_budget = MiB(4)}}},
    {"TwoAccelerators", {.machine = {.accelerators = 2, .budget = KiB(36)}}},
    {"ThreeWithoutPeersAndTheHostComputes",
     {.machine = {.accelerators = 3, .budget = KiB(36), .peers = false, .host_computes = true}}},
    {"TwoWithDiskAndTheHostComputes",
     {.machine = {.accelerators = 2,
                  .budget = KiB(36),
                  .host_budget = KiB(48),
                  .disk_budget = MiB(4),
                  .peers = false,
                  .host_computes = true}}},
    {"HostAndDiskAlone", {.machine = {.accelerators = 0, .host_budget = KiB(48), .disk_budget = MiB(4)}}},
    {"TooSmall",
     {.machine = {.accelerators = 2, .budget = KiB(20), .host_budget = KiB(24)}, .may_run_out = true}},
};

class WalkTest : public testing::TestWithParam<std::tuple<size_t, sim::Visibility>> {};

TEST_P(WalkTest, AgreesWithTheModel) {
  WalkOptions options = kCases[std::get<0>(GetParam())].options;
  options.machine.visibility = std::get<1>(GetParam());
  const uint64_t steps = from_environment("INNKEEPER_STEPS", 1200);
  const uint64_t only = from_environment("INNKEEPER_SEED", 0);
  for (uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : 3); ++seed) {
    SCOPED_TRACE("replay with INNKEEPER_SEED=" + std::to_string(seed));
    options.machine.seed = seed;
    Walk walk(options, seed);
    walk.run(steps);
    if (HasFailure()) return;
    if (std::get<0>(GetParam()) == 0 && steps >= 1000) {
      EXPECT_GT(walk.stats().evictions, 0);
      EXPECT_GT(walk.stats().fetches, 0);
    }
  }
}

std::string name_of(const testing::TestParamInfo<WalkTest::ParamType>& test) {
  const char* const visibility[] = {"Early", "Late", "Random"};
  return std::string(kCases[std::get<0>(test.param)].name) +
         visibility[static_cast<size_t>(std::get<1>(test.param))];
}

INSTANTIATE_TEST_SUITE_P(Machines, WalkTest,
                         testing::Combine(testing::Range(size_t{0}, std::size(kCases)),
                                          testing::Values(sim::Visibility::late, sim::Visibility::random,
                                                          sim::Visibility::early)),
                         name_of);

}  // namespace
}  // namespace innkeeper::test
