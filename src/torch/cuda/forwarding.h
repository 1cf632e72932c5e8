// A CUDA allocator that forwards every call to another one: the base class of an allocator that changes only
// a few calls.
//
// PyTorch's interface grows with its versions, and a virtual function that is not forwarded would silently
// behave as the base class does. So this file contains only the list of functions, and
// tools/check_forwarding.py compares it with each version's header.
//
// Thread safety: as the allocator behind it. Requires: that one outlives this one.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "torch/compat.h"

namespace innkeeper::torch_layer::cuda_backend {

namespace caching = c10::cuda::CUDACachingAllocator;

class ForwardingAllocator : public caching::CUDAAllocator {
 public:
  explicit ForwardingAllocator(caching::CUDAAllocator& target) : target_(target) {}

  // ---- c10::Allocator
  c10::DataPtr allocate(size_t size) override { return target_.allocate(size); }
  bool is_simple_data_ptr(const c10::DataPtr& memory) const override {
    return target_.is_simple_data_ptr(memory);
  }
  c10::DeleterFnPtr raw_deleter() const override { return target_.raw_deleter(); }
  void copy_data(void* destination, const void* source, size_t size) const override {
    target_.copy_data(destination, source, size);
  }

  // ---- c10::DeviceAllocator
  using CUDAAllocator::recordStream;
  bool initialized() override { return target_.initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { target_.emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return target_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { target_.resetAccumulatedStats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { target_.resetPeakStats(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return target_.getMemoryInfo(device);
  }

  // ---- memory
  void* raw_alloc(size_t size) override { return target_.raw_alloc(size); }
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    return target_.raw_alloc_with_stream(size, stream);
  }
  void raw_delete(void* data) override { target_.raw_delete(data); }
  void recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) override {
    target_.recordStream(memory, stream);
  }
  void* getBaseAllocation(void* data, size_t* size) override { return target_.getBaseAllocation(data, size); }
  caching::ShareableHandle shareIpcHandle(void* data) override { return target_.shareIpcHandle(data); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return target_.getIpcDevPtr(std::move(handle));
  }
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override {
    target_.enablePeerAccess(device, peer);
  }
  cudaError_t memcpyAsync(void* destination, int to, const void* source, int from, size_t size,
                          cudaStream_t stream, bool peer_access) override {
    return target_.memcpyAsync(destination, to, source, from, size, stream, peer_access);
  }

  // ---- settings
  void init(int device_count) override { target_.init(device_count); }
  void enable(bool value) override { target_.enable(value); }
  bool isEnabled() const override { return target_.isEnabled(); }
  double getMemoryFraction(c10::DeviceIndex device) override { return target_.getMemoryFraction(device); }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    target_.setMemoryFraction(fraction, device);
  }
  std::string name() override { return target_.name(); }

  // ---- pools of CUDA graphs
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    target_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    target_.endAllocateToPool(device, pool);
  }
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    target_.releasePool(device, pool);
  }
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return target_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    target_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) override {
    target_.setUseOnOOM(device, pool, use);
  }
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    target_.setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return target_.checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                              c10::MempoolId_t pool) override {
    return target_.getCheckpointState(device, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                  std::shared_ptr<caching::AllocatorState> state) override {
    return target_.setCheckpointPoolState(device, std::move(state));
  }

  // ---- statistics and history
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override { target_.cacheInfo(device, largest); }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override {
    return target_.getExpandableSegmentSizes(device);
  }
  caching::SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override {
    return target_.snapshot(pool, traces);
  }
  bool isHistoryEnabled() override { return target_.isHistoryEnabled(); }
  void recordHistory(bool enabled, caching::CreateContextFn recorder, size_t entries,
                     caching::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    target_.recordHistory(enabled, recorder, entries, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    target_.recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override { target_.pushCompileContext(context); }
  void popCompileContext() override { target_.popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { target_.setUserMetadata(metadata); }
  std::string getUserMetadata() override { return target_.getUserMetadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    target_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
    target_.attachAllocatorTraceTracker(std::move(tracker));
  }

#if INNKEEPER_TORCH_AT_LEAST(2, 13)
  void markCaptureBegin(c10::DeviceIndex device) override { target_.markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { target_.markCaptureEnd(device); }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* data) override {
    return target_.getContextForPointer(data);
  }
  void attachOomRejectionObserver(caching::OomRejectionObserver observer) override {
    target_.attachOomRejectionObserver(std::move(observer));
  }
  c10::DataPtr allocateWithAddress(size_t size, void* address) override {
    return target_.allocateWithAddress(size, address);
  }
#endif
#if INNKEEPER_TORCH_AT_LEAST(2, 14)
  bool supportsUserMetadata() override { return target_.supportsUserMetadata(); }
  void annotateMemory(const void* data, const std::string& metadata) override {
    target_.annotateMemory(data, metadata);
  }
#endif

 protected:
  caching::CUDAAllocator& target_;
};

}  // namespace innkeeper::torch_layer::cuda_backend
