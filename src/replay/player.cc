#include "replay/player.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "device/host.h"
#include "policy/eviction.h"
#include "residency/engine.h"
#include "sim/accelerator.h"
#include "sim/clock.h"

namespace innkeeper::replay {
namespace {

using sim::Accelerator;
using trace::AccessKind;
using trace::Entry;
using trace::Record;
using trace::RecordedAccess;
using trace::Work;

constexpr Bytes kHost = GiB(1 << 20);  // addresses alone

// Of an operator of which nobody knew: one kernel that touches its operands once.
Work work_of(const Record& record, const Entry& entry) {
  if (entry.work.kernels != 0) return entry.work;
  Work work{.kernels = 1};
  for (const RecordedAccess& access : record.of(entry))
    work.bytes += static_cast<double>(access.size.count());
  return work;
}

class Player {
 public:
  Player(const Record& record, const Setup& setup) : record_(record) {
    const Bytes room = setup.budget == Bytes(0) ? kHost : setup.budget;
    card_ = std::make_shared<Accelerator>(sim::Options{.capacity = room,
                                                       .visibility = sim::Visibility::early,
                                                       .poison = false,
                                                       .data = false,
                                                       .card = setup.card,
                                                       .host_link = setup.link});
    std::vector<NodeSetup> nodes;
    nodes.push_back({sim::make_device(card_), room, true, {setup.card.bandwidth, setup.link.bandwidth}});
    auto host = std::make_unique<HostDevice>("host", Slabs::Options{.blank = true});
    slabs_ = &host->slabs();
    nodes.push_back({std::move(host), kHost, false});
    engine_ = std::make_unique<Engine>(std::move(nodes), setup.policy());
    engine_->set_planning(setup.planning);
    // A kernel may make an operand larger; here it is so from the beginning.
    for (const RecordedAccess& access : record.accesses) {
      Bytes& size = sizes_[access.block];
      size = std::max(size, access.size);
    }
  }
  ~Player() {
    for (const auto& [id, block] : blocks_) engine_->destroy(block);
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  Result<Played> play() {
    for (const Entry& entry : record_.entries) {
      switch (entry.kind) {
        case Entry::Kind::operation: IK_RETURN_IF_ERROR(run(entry)); break;
        case Entry::Kind::freed: free(entry.block); break;
        case Entry::Kind::mark:
          if (ends_step(entry)) end_step();
          break;
      }
    }
    IK_RETURN_IF_ERROR(engine_->synchronize());
    played_.peak = Bytes(engine_->glance(kCard).peak);
    played_.host.used = Bytes(engine_->glance(engine_->host()).peak);
    played_.bound = Bytes(engine_->planning().round.bytes_bound);
    return std::move(played_);
  }

 private:
  static constexpr NodeId kCard{0};

  Status run(const Entry& entry) {
    std::vector<Access> accesses;
    std::vector<BlockId> born;
    for (const RecordedAccess& access : record_.of(entry)) {
      if (sizes_[access.block] == Bytes(0)) continue;
      if (std::find(born.begin(), born.end(), access.block) != born.end()) continue;
      if (access.kind == AccessKind::born && !blocks_.contains(access.block)) {
        born.push_back(access.block);
      } else {
        add(accesses, access);
      }
    }
    Bytes operands{0};
    for (const Access& access : accesses) operands += access.block->size();
    const OperatorScope scope(*engine_, kCard, operands);
    if (const Status there = engine_->acquire(kCard, std::span(accesses)); !there.ok())
      return Status(there.code(), entry.text + ": " + there.message());
    const Status made = make(born, accesses);
    if (made.ok()) compute(work_of(record_, entry));
    engine_->count_operator(kCard);
    engine_->release(kCard, std::span(accesses));
    ++played_.operators;
    played_.host.held = std::max(played_.host.held, slabs_->held());
    return made.ok() ? Status() : Status(made.code(), entry.text + ": " + made.message());
  }

  void add(std::vector<Access>& accesses, const RecordedAccess& access) {
    Block*& block = blocks_[access.block];
    if (block == nullptr) block = engine_->create(sizes_[access.block]);
    const bool write = access.kind != AccessKind::read;
    for (Access& before : accesses) {
      if (before.block != block) continue;
      before.write |= write;
      return;
    }
    accesses.push_back({.block = block, .write = write});
  }

  // As a kernel allocates its results.
  Status make(const std::vector<BlockId>& born, std::vector<Access>& accesses) {
    for (const BlockId id : born) {
      Result<Memory> memory = engine_->device(kCard).allocate(sizes_[id]);
      IK_RETURN_IF_ERROR(memory.status());
      Block* block = blocks_[id] = engine_->create(sizes_[id]);
      engine_->adopt(*block, kCard, std::move(memory).value());
      accesses.push_back({.block = block, .pinned = true, .born = true});
    }
    return {};
  }

  void compute(const Work& work) {
    const auto parts = static_cast<double>(work.kernels);
    for (int64_t i = 0; i < work.kernels; ++i) {
      card_->begin_kernel(0);
      card_->end_kernel(0, {}, {.flops = work.flops / parts, .bytes = work.bytes / parts});
    }
  }

  void free(BlockId id) {
    const auto found = blocks_.find(id);
    if (found == blocks_.end()) return;
    engine_->destroy(found->second);
    blocks_.erase(found);
  }

  void end_step() {
    const StepCost now{card_->time(), card_->copied(Accelerator::Direction::in),
                       card_->copied(Accelerator::Direction::out)};
    played_.steps.push_back({now.seconds - before_.seconds, now.in - before_.in, now.out - before_.out});
    before_ = now;
  }

  const Record& record_;
  std::shared_ptr<Accelerator> card_;
  const Slabs* slabs_ = nullptr;  // the host's
  std::unique_ptr<Engine> engine_;
  std::unordered_map<BlockId, Bytes> sizes_;
  std::unordered_map<BlockId, Block*> blocks_;
  StepCost before_;
  Played played_;
};

}  // namespace

Result<Played> play(const Record& record, const Setup& setup) { return Player(record, setup).play(); }

double seconds_of(const Record& record, const Entry& operation, const sim::Card& card) {
  const Work work = work_of(record, operation);
  const auto kernels = static_cast<double>(work.kernels);
  return kernels * sim::kernel_seconds(card, {.flops = work.flops / kernels, .bytes = work.bytes / kernels});
}

std::vector<double> kernel_seconds(const Record& record, const sim::Card& card) {
  std::vector<double> steps;
  double seconds = 0;
  for (const Entry& entry : record.entries) {
    if (entry.kind == Entry::Kind::operation) {
      seconds += seconds_of(record, entry, card);
    } else if (ends_step(entry)) {
      steps.push_back(seconds);
      seconds = 0;
    }
  }
  return steps;
}

}  // namespace innkeeper::replay
