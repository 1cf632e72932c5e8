// A machine for tests of the engine: simulated accelerators over a host, perhaps a disk, and kernels on them.
//
// A kernel is a function over the operands' bytes, run as the torch layer runs one: admission, acquire,
// begin_kernel, compute, end_kernel, release. On an accelerator the simulator hides a kernel's writes until a
// reader is entitled to see them. A wait that the engine forgets shows as poison (sim/accelerator.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/disk.h"
#include "device/host.h"
#include "policy/eviction.h"
#include "residency/engine.h"
#include "residency/movement/program_copy.h"
#include "sim/accelerator.h"
#include "support/contents.h"
#include "support/faulty_device.h"

namespace innkeeper::test {

inline constexpr size_t kSize = 4096;  // Bytes of a block, where a test has no reason for another size.

struct MachineOptions {
  size_t accelerators = 1;
  Bytes budget = KiB(64);  // Budget of each accelerator.
  Bytes host_budget = MiB(16);
  std::optional<Bytes> disk_budget = std::nullopt;
  sim::Visibility visibility = sim::Visibility::late;
  uint64_t seed = 1;
  bool peers = true;            // Accelerators reach each other's memory.
  bool host_computes = false;   // Operators may run on the host although there are accelerators.
  FaultPlan* faults = nullptr;  // Counts the calls to every device and fails some; null: no failures.
  DiskCalls disk_calls = DiskCalls::of_the_system();
  std::unique_ptr<EvictionPolicy> (*policy)() = make_reuse_distance_policy;
  LinkLimits links = {};
  cost::GpuModel gpu = cost::default_gpu();
  cost::LinkModel link = cost::default_host_link();
  bool unseen = false;   // Accelerators work unseen.
  bool measured = true;  // The engine knows the accelerators' speeds and clocks.
};

class Machine {
 public:
  explicit Machine(const MachineOptions& options = {}) {
    std::vector<NodeSetup> nodes;
    for (size_t i = 0; i < options.accelerators; ++i) {
      // More capacity than the budget: the engine enforces the budget, not the capacity.
      gpus_.push_back(std::make_shared<sim::Accelerator>(sim::Options{.name = "sim:" + std::to_string(i),
                                                                      .capacity = MiB(64),
                                                                      .visibility = options.visibility,
                                                                      .seed = options.seed + i,
                                                                      .gpu = options.gpu,
                                                                      .host_link = options.link}));
      nodes.push_back({wrap(sim::make_device(gpus_.back()), options), options.budget, true});
      if (!options.measured) continue;
      nodes.back().speed = {gpus_.back()->options().gpu.bytes(), options.link.bandwidth};
      nodes.back().time = [gpu = gpus_.back()] { return ComputeTime{gpu->time(0), gpu->busy(0)}; };
    }
    const bool host_computes = options.host_computes || options.accelerators == 0;
    nodes.push_back({wrap(std::make_unique<HostDevice>(), options), options.host_budget, host_computes});
    if (options.disk_budget.has_value()) {
      Result<std::unique_ptr<DiskDevice>> disk =
          DiskDevice::open({.path = std::filesystem::temp_directory_path(),
                            .capacity = *options.disk_budget,
                            .direct = false,
                            .calls = options.disk_calls});
      IK_CHECK(disk.ok(), disk.status().message());
      nodes.push_back({wrap(std::move(disk).value(), options), *options.disk_budget, false});
    }
    engine_ = std::make_unique<Engine>(std::move(nodes), options.policy());
    engine_->mover().set_link_limits(options.links);
  }

  Engine& engine() { return *engine_; }
  Engine* operator->() { return engine_.get(); }
  NodeId sim(size_t index = 0) const { return NodeId{static_cast<uint8_t>(index)}; }
  NodeId host() const { return engine_->host(); }
  NodeId disk() const { return engine_->disk(); }
  sim::Accelerator* gpu(NodeId node) const {
    return index_of(node) < gpus_.size() ? gpus_[index_of(node)].get() : nullptr;
  }

  // Called inside kernels, between their two allocations: for tests in which another thread intervenes.
  void set_pause(std::function<void()> pause) { pause_ = std::move(pause); }

  using Kernel = std::function<void(std::span<const std::span<unsigned char>> operands)>;

  // Runs a kernel at `node` with its operands acquired.
  Status run(NodeId node, std::vector<Access> accesses, const Kernel& kernel) {
    std::optional<NodeAdmission> scope;
    IK_RETURN_IF_ERROR(engine_->gather(node, accesses, size_of(accesses), scope));
    launch(node, accesses, kernel);
    engine_->count_operator(node);
    engine_->release(node, std::span(accesses));
    return {};
  }

  // Runs the kernel alone: the accesses are pinned.
  void launch(NodeId node, std::span<const Access> accesses, const Kernel& kernel) {
    const std::vector<std::span<unsigned char>> operands = bytes_of(node, accesses);
    std::vector<sim::WrittenRange> written;
    for (size_t i = 0; i < accesses.size(); ++i) {
      if (accesses[i].write) written.push_back({operands[i].data(), operands[i].size()});
    }
    sim::Accelerator* on = gpu(node);
    if (on != nullptr) on->begin_kernel(0);
    kernel(operands);
    if (on != nullptr) on->end_kernel(0, written, {});
  }

  // Writes `contents` into the whole block with a kernel.
  Status write(Block& block, NodeId node, const Contents& contents) {
    return run(node, {{.block = &block, .write = true}},
               [&](auto operands) { std::copy(contents.begin(), contents.end(), operands[0].begin()); });
  }

  // The bytes that a kernel at `node` sees.
  Result<Contents> read(Block& block, NodeId node) {
    Contents seen;
    IK_RETURN_IF_ERROR(run(node, {{.block = &block}},
                           [&](auto operands) { seen.assign(operands[0].begin(), operands[0].end()); }));
    return seen;
  }

  // Runs a kernel that allocates its result (the last operand) and perhaps scratch memory inside, like real
  // kernels.
  Result<Block*> run_for_result(NodeId node, std::vector<Access> accesses, Bytes size, Bytes scratch,
                                const Kernel& kernel) {
    std::optional<NodeAdmission> scope;
    IK_RETURN_IF_ERROR(engine_->gather(node, accesses, size_of(accesses), scope));
    Result<Memory> memory = allocate_result(node, size, scratch);
    Block* block = nullptr;
    if (memory.ok()) {
      const sim::WrittenRange written{memory.value().data(), static_cast<size_t>(size.count())};
      std::vector<std::span<unsigned char>> operands = bytes_of(node, accesses);
      operands.emplace_back(static_cast<unsigned char*>(written.data), written.size);
      sim::Accelerator* on = gpu(node);
      if (on != nullptr) on->begin_kernel(0);
      kernel(operands);
      if (on != nullptr) on->end_kernel(0, std::span(&written, 1), {});
      block = engine_->create(size);
      engine_->adopt(*block, node, std::move(memory).value());
      accesses.push_back({.block = block, .pinned = true, .born = true});
    }
    engine_->release(node, std::span(accesses));
    if (block == nullptr) return memory.status();
    return block;
  }

  // Copies all of the block from or to `host`, like a program that does not wait for the copy.
  Status copy(NodeId node, Block& block, Queue queue, void* host) {
    Access access{.block = &block, .write = queue == Queue::copy_in, .queue = queue};
    std::optional<NodeAdmission> scope;
    IK_RETURN_IF_ERROR(engine_->gather(node, std::span(&access, 1), block.size(), scope));
    ProgramCopy copy(engine_->table(), node, access);
    Status status = copy.begin();
    if (status.ok()) {
      Device& device = engine_->device(node);
      const Result<Event> copied = access.write ? device.copy_in(block.data(node), host, block.size())
                                                : device.copy_out(host, block.data(node), block.size());
      status = copied.ok() ? copy.end(copied.value()) : copied.status();
      if (copied.ok() && !status.ok()) (void)copied.value()->synchronize();
    }
    engine_->release(node, std::span(&access, 1));
    return status;
  }

  // A new block whose only replica is a kernel's fresh result at `node`, with `contents`.
  Result<Block*> make(NodeId node, const Contents& contents) {
    return run_for_result(
        node, {}, Bytes(static_cast<int64_t>(contents.size())), Bytes(0),
        [&](auto operands) { std::copy(contents.begin(), contents.end(), operands[0].begin()); });
  }

 private:
  Result<Memory> allocate_result(NodeId node, Bytes size, Bytes scratch) {
    if (scratch == Bytes(0)) return engine_->device(node).allocate(size);
    Result<Memory> temporary = engine_->device(node).allocate(scratch);
    if (!temporary.ok()) return temporary.status();
    if (pause_) pause_();
    return engine_->device(node).allocate(size);
  }

  static Bytes size_of(std::span<const Access> accesses) {
    Bytes total{0};
    for (const Access& access : accesses) total += access.block->size();
    return total;
  }

  static std::vector<std::span<unsigned char>> bytes_of(NodeId node, std::span<const Access> accesses) {
    std::vector<std::span<unsigned char>> operands;
    for (const Access& access : accesses) {
      operands.emplace_back(static_cast<unsigned char*>(access.block->data(node)),
                            static_cast<size_t>(access.block->size().count()));
    }
    return operands;
  }

  static std::unique_ptr<Device> wrap(std::unique_ptr<Device> device, const MachineOptions& options) {
    return std::make_unique<FaultyDevice>(std::move(device), options.faults, options.peers, options.unseen);
  }

  std::vector<std::shared_ptr<sim::Accelerator>> gpus_;
  std::unique_ptr<Engine> engine_;
  std::function<void()> pause_;
};

}  // namespace innkeeper::test
