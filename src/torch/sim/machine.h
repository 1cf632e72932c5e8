// The installed accelerators, for the guard, the allocator and the kernels.
//
// Thread safety: entries change only in install(), which must not run concurrently with any other use.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <atomic>
#include <memory>

#include "base/thread_annotations.h"
#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer::sim_backend {

// Counters of one accelerator's allocator, for c10's statistics.
class AllocatorStats {
 public:
  void allocated(Bytes size) IK_EXCLUDES(mutex_);
  void freed(Bytes size) IK_EXCLUDES(mutex_);
  void failed() IK_EXCLUDES(mutex_);
  c10::CachingDeviceAllocator::DeviceStats report() IK_EXCLUDES(mutex_);
  void reset_accumulated() IK_EXCLUDES(mutex_);
  void reset_peak() IK_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  c10::CachingAllocator::Stat bytes_ IK_GUARDED_BY(mutex_);
  c10::CachingAllocator::Stat pieces_ IK_GUARDED_BY(mutex_);
  int64_t failures_ IK_GUARDED_BY(mutex_) = 0;
};

inline constexpr uint32_t kPlainStreams = 4;

class Machine {
 public:
  struct Entry {
    std::shared_ptr<sim::Accelerator> accelerator;
    Accountant* accountant = nullptr;
    NodeId node = kNoNode;
    AllocatorStats stats;
    sim::QueueIndex first_stream = 0;  // First of kPlainStreams queues for getStreamFromGlobalPool.
    std::atomic<uint32_t> next_fast_stream{0};
    std::atomic<uint32_t> next_stream{0};
  };

  bool has_data() const noexcept { return has_data_.load(std::memory_order_relaxed); }
  c10::DeviceIndex count() const noexcept { return count_.load(std::memory_order_acquire); }
  Entry& entry(c10::DeviceIndex index);  // Throws if there is none.
  AllocatorStats& stats(c10::DeviceIndex index) { return entries_[static_cast<size_t>(index)].stats; }
  // The accelerator whose memory contains the address. Throws if there is none.
  c10::DeviceIndex index_of(const void* data) const;
  void replace(std::vector<std::shared_ptr<sim::Accelerator>> accelerators, Accountant* accountant,
               std::span<const NodeId> nodes);

 private:
  std::array<Entry, kMaxNodes> entries_;
  std::atomic<c10::DeviceIndex> count_{0};
  std::atomic<bool> has_data_{true};
};

// Never destroyed.
Machine& machine();

}  // namespace innkeeper::torch_layer::sim_backend
