#include "torch/memory/device_allocator.h"
#include "torch/memory/moved_copies.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <vector>

#include "torch/memory/device_index.h"
#include "torch/memory/index_memory.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

class HandleAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    return make_handle_pointer(Bytes(static_cast<int64_t>(size)), current_index());
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "managed memory has no address to copy from; copy tensors");
  }

  bool initialized() override { return runtime_if_started() != nullptr; }
  void emptyCache(c10::MempoolId_t) override {
    note_empty_cache();
    if (Runtime* started = runtime_if_started()) started->engine().trim();
  }
  // Does nothing: the engine orders every reuse of memory after its users (I6).
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    forget_copies_of_dead_tensors();
    check_device_index(index);
    c10::CachingDeviceAllocator::DeviceStats result;
    Runtime* started = runtime_if_started();
    if (started == nullptr) return result;
    Engine& engine = started->engine();
    const Stats stats = engine.stats();
    c10::CachingAllocator::Stat bytes;
    Bytes budget{0};
    for (NodeId node : nodes_of(engine, index)) {
      const NodeStats& row = stats.nodes.at(engine.device(node).name());
      bytes.current += row.resident;
      bytes.peak += row.peak;
      budget += engine.budget(node);
    }
    c10::CachingAllocator::Stat reserved = bytes;
    c10::CachingAllocator::Stat requested = bytes;
    if (has_device_per_node()) {
      const IndexMemory memory = index_memory(resolved_index(index));
      requested.current = memory.now.count();
      requested.peak = memory.peak.count();
      // Simulated memory is not kept when it is freed. A caching allocator would keep that amount, as far as
      // it fits the budget.
      reserved.current = std::max(bytes.current, std::min(memory.since_emptied, budget).count());
      reserved.peak = std::max(bytes.peak, reserved.current);
    }
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    result.allocated_bytes[kAll] = result.active_bytes[kAll] = bytes;
    result.reserved_bytes[kAll] = reserved;
    result.requested_bytes[kAll] = requested;
    const auto blocks = static_cast<int64_t>(engine.table().block_count());
    result.allocation[kAll].current = result.active[kAll].current = blocks;
    return result;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { check_device_index(index); }
  void resetPeakStats(c10::DeviceIndex index) override {
    check_device_index(index);
    reset_peak(resolved_index(index));
    Runtime* started = runtime_if_started();
    if (started == nullptr) return;
    if (!has_device_per_node()) return started->engine().reset_stats();
    for (const NodeId node : nodes_of(started->engine(), index)) started->engine().reset_peak(node);
  }
  // Returns {free, total} bytes of the budgets. Starts the runtime, which knows them.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    check_device_index(index);
    Engine& engine = runtime().engine();
    Bytes free{0};
    Bytes total{0};
    for (NodeId node : nodes_of(engine, index)) {
      free += std::max(engine.free(node), Bytes(0));
      total += engine.budget(node);
    }
    return {static_cast<size_t>(free.count()), static_cast<size_t>(total.count())};
  }

 private:
  // The nodes whose memory is the device's: all computing nodes, or the one that the index prefers.
  static std::vector<NodeId> nodes_of(const Engine& engine, c10::DeviceIndex index) {
    const NodeId own = node_at(resolved_index(index));
    return own == kNoNode ? engine.computing_nodes() : std::vector<NodeId>{own};
  }
};

HandleAllocator& the_allocator() {
  static auto& allocator = *new HandleAllocator;
  return allocator;
}

}  // namespace

c10::Allocator* handle_allocator() { return &the_allocator(); }

}  // namespace innkeeper::torch_layer
