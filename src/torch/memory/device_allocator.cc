#include "torch/memory/device_allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "torch/memory/index_memory.h"
#include "torch/runtime/device_index.h"
#include "torch/runtime/runtime_state.h"

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
    empty_reserved();
    if (Runtime* started = runtime_if_started()) started->engine().trim();
  }
  // The engine orders every reuse of memory after its users (I6).
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    check_device_index(index);
    c10::CachingDeviceAllocator::DeviceStats result;
    Runtime* started = runtime_if_started();
    if (started == nullptr) return result;
    Engine& engine = started->engine();
    const Stats stats = engine.stats();
    c10::CachingAllocator::Stat bytes;
    for (NodeId node : engine.computing_nodes()) {
      const NodeStats& row = stats.nodes.at(engine.device(node).name());
      bytes.current += row.resident;
      bytes.peak += row.peak;
    }
    c10::CachingAllocator::Stat reserved = bytes;
    if (has_device_per_node()) {
      const IndexMemory memory = index_memory(index < 0 ? current_index() : index);
      bytes.current = memory.allocated.count();
      bytes.peak = memory.peak.count();
      reserved.current = memory.reserved.count();
      reserved.peak = memory.peak_reserved.count();
    }
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    for (auto* array : {&result.allocated_bytes, &result.active_bytes, &result.requested_bytes})
      (*array)[kAll] = bytes;
    result.reserved_bytes[kAll] = reserved;
    const auto blocks = static_cast<int64_t>(engine.block_count());
    result.allocation[kAll].current = result.active[kAll].current = blocks;
    return result;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { check_device_index(index); }
  void resetPeakStats(c10::DeviceIndex index) override {
    check_device_index(index);
    reset_peaks(index < 0 ? current_index() : index);
    if (Runtime* started = runtime_if_started()) started->engine().reset_stats();
  }
  // {free, total} bytes of the budgets. Starts the runtime, which knows them.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    check_device_index(index);
    Engine& engine = runtime().engine();
    Bytes free{0};
    Bytes total{0};
    for (NodeId node : engine.computing_nodes()) {
      if (has_device_per_node() && node != node_at(index)) continue;
      free += std::max(engine.free(node), Bytes(0));
      total += engine.budget(node);
    }
    return {static_cast<size_t>(free.count()), static_cast<size_t>(total.count())};
  }
};

HandleAllocator& the_allocator() {
  static auto& allocator = *new HandleAllocator;
  return allocator;
}

}  // namespace

c10::Allocator* handle_allocator() { return &the_allocator(); }

}  // namespace innkeeper::torch_layer
