#include "torch/memory/pinned_memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <map>
#include <memory>

#include "base/thread_annotations.h"
#include "torch/memory/handle.h"
#include "torch/process/fork.h"

namespace innkeeper::torch_layer {
namespace {

bool has_cuda() {
  static const bool has = at::detail::getCUDAHooks().hasCUDA();
  return has;
}

// The allocated ranges, by address.
class PinnedRanges {
 public:
  PinnedRanges() { take_at_fork(mutex_); }
  void add(const void* address, size_t size) {
    MutexLock lock(mutex_);
    ranges_[reinterpret_cast<uintptr_t>(address)] = size;
    count_.fetch_add(1, std::memory_order_release);
    bytes_.increase(size);
  }
  void remove(const void* address) {
    MutexLock lock(mutex_);
    const auto range = ranges_.find(reinterpret_cast<uintptr_t>(address));
    bytes_.decrease(range->second);
    ranges_.erase(range);
    count_.fetch_sub(1, std::memory_order_release);
  }
  bool contains(const void* address) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    const auto at = reinterpret_cast<uintptr_t>(address);
    MutexLock lock(mutex_);
    auto after = ranges_.upper_bound(at);
    if (after == ranges_.begin()) return false;
    const auto& [begin, size] = *std::prev(after);
    return at - begin < size;
  }
  template <class Visit>
  void visit_bytes(Visit&& visit) {
    MutexLock lock(mutex_);
    visit(bytes_, static_cast<int64_t>(ranges_.size()));
  }

 private:
  Mutex mutex_;
  std::map<uintptr_t, size_t> ranges_ IK_GUARDED_BY(mutex_);
  c10::CachingAllocator::Stat bytes_ IK_GUARDED_BY(mutex_);
  std::atomic<size_t> count_{0};
};

PinnedRanges& ranges() {
  static auto& all = *new PinnedRanges;
  return all;
}

void release_pinned(void* context) {
  const std::unique_ptr<c10::DataPtr> memory(static_cast<c10::DataPtr*>(context));
  ranges().remove(memory->get());
}

// Registered as PyTorch's host allocator for the managed device; forwards to CUDA's allocator if there is
// CUDA.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (has_cuda()) return at::getHostAllocator(c10::kCUDA)->allocate(size);
    if (size == 0) return {nullptr, c10::Device(c10::kCPU)};
    auto memory = std::make_unique<c10::DataPtr>(c10::GetCPUAllocator()->allocate(size));
    void* data = memory->get();
    ranges().add(data, size);
    return {data, memory.release(), &release_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* destination, const void* source, size_t size) const override {
    default_copy_data(destination, source, size);
  }
  // Needs no event: copies from pinned memory have finished with it when they return. Only copies to a
  // CUDA node have not, and their copy kernel informs CUDA's own allocator.
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {
    if (has_cuda()) at::getHostAllocator(c10::kCUDA)->empty_cache();
  }
  at::HostStats get_stats() override {
    if (has_cuda()) return at::getHostAllocator(c10::kCUDA)->get_stats();
    at::HostStats stats;
    ranges().visit_bytes([&stats](const c10::CachingAllocator::Stat& bytes, int64_t count) {
      stats.allocations.current = count;
      stats.allocated_bytes = bytes;
    });
    return stats;
  }
  void reset_accumulated_stats() override {
    if (has_cuda()) at::getHostAllocator(c10::kCUDA)->reset_accumulated_stats();
    ranges().visit_bytes([](c10::CachingAllocator::Stat& bytes, int64_t) { bytes.reset_accumulated(); });
  }
  void reset_peak_stats() override {
    if (has_cuda()) at::getHostAllocator(c10::kCUDA)->reset_peak_stats();
    ranges().visit_bytes([](c10::CachingAllocator::Stat& bytes, int64_t) { bytes.reset_peak(); });
  }
};

PinnedAllocator& the_pinned_allocator() {
  static auto& allocator = *new PinnedAllocator;
  return allocator;
}

}  // namespace

c10::Allocator* pinned_allocator() { return &the_pinned_allocator(); }

bool is_pinned_address(const void* address) {
  if (has_cuda()) return at::detail::getCUDAHooks().isPinnedPtr(address);
  return ranges().contains(address);
}

void register_host_allocator() {
  at::setHostAllocator(kManagedType, &the_pinned_allocator(), /*priority=*/1);
}

}  // namespace innkeeper::torch_layer
