#include "replay/player.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "device/host.h"
#include "policy/eviction.h"
#include "residency/engine.h"
#include "sim/accelerator.h"
#include "sim/clock.h"

namespace innkeeper::replay {
namespace {

using sim::Accelerator;
using trace::AccessKind;
using trace::AccessRecord;
using trace::RecordedAccess;
using trace::RecordEntry;
using trace::Work;

constexpr Bytes kHost = GiB(1 << 20);  // Blank addresses that take no memory.

// Returns one of an operator's kernels, which are taken to be equal.
cost::KernelCost kernel_of(const Work& work) {
  const auto kernels = static_cast<double>(work.kernels);
  return {.flops = work.flops / kernels, .bytes = work.bytes / kernels, .precision = work.precision};
}

class Player {
 public:
  Player(const AccessRecord& record, const Setup& setup)
      : record_(record), times_(setup.times), model_gpu_(setup.gpu) {
    const Bytes space = setup.budget == Bytes(0) ? kHost : setup.budget;
    gpu_ = std::make_shared<Accelerator>(sim::Options{.capacity = space,
                                                      .visibility = sim::Visibility::early,
                                                      .poison = false,
                                                      .data = false,
                                                      .host_seconds = setup.times.host_seconds,
                                                      .gpu = setup.gpu,
                                                      .host_link = setup.link});
    std::vector<NodeSetup> nodes;
    nodes.push_back({sim::make_device(gpu_), space, true, {setup.gpu.bytes(), setup.link.bandwidth}});
    if (setup.times.by != KernelTimes::By::none) {
      nodes.back().time = [this] {
        return ComputeTime{gpu_->time(0), times_.model == nullptr ? gpu_->busy(0) : modelled_,
                           times_.one_clock ? 0 : gpu_->host_time()};
      };
    }
    auto host = std::make_unique<HostDevice>("host", Slabs::Options{.blank = true});
    slabs_ = &host->slabs();
    nodes.push_back({std::move(host), kHost, false});
    engine_ = std::make_unique<Engine>(std::move(nodes), setup.policy());
    engine_->plans().set_planning(setup.planning);
    engine_->plans().set_recompute(setup.recompute);
    engine_->set_observers({.recorded_calls = [this](Block& block) { return recorded_call_of(block); }});
    // A kernel may enlarge an operand; here the operand has its final size from the beginning.
    for (const RecordedAccess& access : record.accesses) {
      Bytes& size = sizes_[access.block];
      size = std::max(size, access.size);
    }
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  Result<Played> play() {
    for (const RecordEntry& entry : record_.entries) {
      switch (entry.kind) {
        case RecordEntry::Kind::operation: IK_RETURN_IF_ERROR(run(entry)); break;
        case RecordEntry::Kind::freed: free(entry.block); break;
        case RecordEntry::Kind::mark:
          if (ends_step(entry)) end_step();
          break;
      }
    }
    IK_RETURN_IF_ERROR(engine_->synchronize());
    played_.peak = Bytes(engine_->glance(kGpu).peak);
    played_.host.used = Bytes(engine_->glance(engine_->host()).peak);
    played_.bound = Bytes(engine_->plans().planning().period.bytes_bound);
    return std::move(played_);
  }

 private:
  static constexpr NodeId kGpu{0};
  using Handle = std::shared_ptr<Block>;

  Status run(const RecordEntry& entry) {
    std::vector<Access> accesses;
    std::vector<RecordedAccess> born;
    for (const RecordedAccess& access : record_.of(entry)) {
      if (sizes_[access.block] == Bytes(0)) continue;
      const auto is_it = [&](const RecordedAccess& before) { return before.block == access.block; };
      if (std::any_of(born.begin(), born.end(), is_it)) continue;
      if (is_born(access.kind) && !blocks_.contains(access.block)) {
        born.push_back(access);
      } else {
        add(accesses, access);
      }
    }
    Bytes operands{0};
    for (const Access& access : accesses) operands += access.block->size();
    std::optional<NodeAdmission> scope;
    if (const Status there = engine_->gather(kGpu, accesses, operands, scope); !there.ok())
      return Status(there.code(), entry.text + ": " + there.message());
    const Status made = make(born, accesses);
    if (made.ok()) compute(entry);
    if (made.ok() && engine_->recomputer().is_on()) remember(entry, born);
    engine_->count_operator(kGpu);
    engine_->release(kGpu, std::span(accesses));
    ++played_.operators;
    played_.host.held = std::max(played_.host.held, slabs_->held());
    return made.ok() ? Status() : Status(made.code(), entry.text + ": " + made.message());
  }

  void add(std::vector<Access>& accesses, const RecordedAccess& access) {
    Handle& handle = blocks_[access.block];
    if (handle == nullptr) handle = create(sizes_[access.block]);
    Block* const block = handle.get();
    const bool write = access.kind != AccessKind::read;
    for (Access& before : accesses) {
      if (before.block != block) continue;
      before.write |= write;
      return;
    }
    accesses.push_back({.block = block, .write = write});
  }

  // Allocates results as a kernel does.
  Status make(const std::vector<RecordedAccess>& born, std::vector<Access>& accesses) {
    for (const RecordedAccess& access : born) {
      const Result<Handle> made = make(sizes_[access.block], accesses);
      IK_RETURN_IF_ERROR(made.status());
      accesses.back().pure = access.kind == AccessKind::pure;
      blocks_[access.block] = made.value();
    }
    return {};
  }

  Result<Handle> make(Bytes size, std::vector<Access>& accesses) {
    Result<Memory> memory = engine_->device(kGpu).allocate(size);
    IK_RETURN_IF_ERROR(memory.status());
    Handle block = create(size);
    engine_->adopt(*block, kGpu, std::move(memory).value());
    accesses.push_back({.block = block.get(), .pinned = true, .born = true});
    return block;
  }

  void compute(const RecordEntry& entry) {
    if (times_.model != nullptr) {
      const auto place = static_cast<size_t>(&entry - record_.entries.data());
      modelled_ += seconds_of(*times_.model, times_.model->entries[place], model_gpu_);
    }
    const Work work = work_of(record_, entry);
    for (int64_t i = 0; i < work.kernels; ++i) {
      gpu_->begin_kernel(0);
      gpu_->end_kernel(0, {}, kernel_of(work));
    }
  }

  // A recorded call may keep the block alive.
  void free(BlockId id) {
    const auto found = blocks_.find(id);
    if (found == blocks_.end()) return;
    made_by_.erase(found->second.get());
    blocks_.erase(found);
  }

  Handle create(Bytes size) {
    return {engine_->create(size), [this](Block* block) { engine_->destroy(block); }};
  }

  // Recomputation of a block: its operator and, until the engine holds it, the operator's inputs.
  struct Made {
    const RecordEntry* entry;
    std::vector<std::pair<std::weak_ptr<Block>, uint32_t>> inputs;
    uint32_t writes;
  };

  // Records how to recompute the pure results of an operator.
  void remember(const RecordEntry& entry, const std::vector<RecordedAccess>& born) {
    for (const RecordedAccess& access : born) {
      if (access.kind != AccessKind::pure) continue;
      const Block* const block = blocks_[access.block].get();
      Made made{&entry, {}, block->writes()};
      for (const RecordedAccess& input : record_.of(entry)) {
        if (is_born(input.kind) || sizes_[input.block] == Bytes(0)) continue;
        const Handle& read = blocks_[input.block];
        made.inputs.emplace_back(read, read->writes());
      }
      made_by_[block] = std::move(made);
    }
  }

  class Again final : public RecordedCall {
   public:
    Again(Player& player, const Made& made) : player_(player), made_(made) {
      for (const auto& [block, writes] : made.inputs) {
        held_.push_back(block.lock());
        inputs_.push_back({held_.back().get(), writes});
      }
      if (std::find(held_.begin(), held_.end(), nullptr) != held_.end()) inputs_.clear();
    }
    std::span<const Input> inputs() const override { return inputs_; }
    uint32_t writes() const override { return made_.writes; }
    NodeId node() const override { return kGpu; }
    Status follow(Block& block) override { return player_.make_again(block, *made_.entry, held_); }

   private:
    Player& player_;
    const Made made_;
    std::vector<Handle> held_;
    std::vector<Input> inputs_;
  };

  std::unique_ptr<RecordedCall> recorded_call_of(Block& block) {
    const auto found = made_by_.find(&block);
    if (found == made_by_.end()) return nullptr;
    return std::make_unique<Again>(*this, found->second);
  }

  Status make_again(Block& block, const RecordEntry& entry, std::span<const Handle> inputs) {
    std::vector<Access> accesses;
    Bytes operands{0};
    for (const Handle& input : inputs) {
      accesses.push_back({.block = input.get()});
      operands += input->size();
    }
    std::optional<NodeAdmission> scope;
    IK_RETURN_IF_ERROR(engine_->gather(kGpu, accesses, operands, scope));
    const Result<Handle> made = make(block.size(), accesses);
    if (made.ok()) compute(entry);
    engine_->release(kGpu, std::span(accesses));
    scope.reset();
    return made.ok() ? engine_->recomputer().refill(block, *made.value(), kGpu) : made.status();
  }

  void end_step() {
    const StepCost now{gpu_->time(), gpu_->copied(Accelerator::Direction::in),
                       gpu_->copied(Accelerator::Direction::out)};
    played_.steps.push_back({now.seconds - before_.seconds, now.in - before_.in, now.out - before_.out});
    before_ = now;
  }

  const AccessRecord& record_;
  const KernelTimes times_;
  const cost::GpuModel model_gpu_;
  double modelled_ = 0;  // Seconds of kernels, by the model.
  std::shared_ptr<Accelerator> gpu_;
  const Slabs* slabs_ = nullptr;  // Slabs of the host.
  std::unique_ptr<Engine> engine_;
  std::unordered_map<BlockId, Bytes> sizes_;
  std::unordered_map<const Block*, Made> made_by_;
  std::unordered_map<BlockId, Handle> blocks_;
  StepCost before_;
  Played played_;
};

}  // namespace

Work work_of(const AccessRecord& record, const RecordEntry& operation) {
  if (operation.work.kernels != 0) return operation.work;
  Work work{.kernels = 1};
  for (const RecordedAccess& access : record.of(operation))
    work.bytes += static_cast<double>(access.size.count());
  return work;
}

Result<Played> play(const AccessRecord& record, const Setup& setup) { return Player(record, setup).play(); }

double seconds_of(const AccessRecord& record, const RecordEntry& operation, const cost::GpuModel& gpu) {
  const Work work = work_of(record, operation);
  return static_cast<double>(work.kernels) * cost::kernel_seconds(gpu, kernel_of(work));
}

std::vector<double> kernel_seconds(const AccessRecord& record, const cost::GpuModel& gpu) {
  std::vector<double> steps;
  double seconds = 0;
  for (const RecordEntry& entry : record.entries) {
    if (entry.kind == RecordEntry::Kind::operation) {
      seconds += seconds_of(record, entry, gpu);
    } else if (ends_step(entry)) {
      steps.push_back(seconds);
      seconds = 0;
    }
  }
  return steps;
}

}  // namespace innkeeper::replay
