// An allocator in front of PyTorch's caching allocator for CUDA. It charges allocations to nodes, and makes
// the engine free space before it takes the memory. This covers replicas, kernels' results and scratch
// memory, and the program's own CUDA tensors, because they take the same bytes.
//
// The caching allocator may be out of memory although the budget has free space: another process took it, or
// its segments are fragmented. Then replicas are evicted and the allocation, never the operator, is tried
// again (I9).
//
// Charges are multiples of 512 bytes, the unit of the caching allocator with expandable segments. (install
// sets these; with expandable_segments:False a piece may take 1 MiB more than its charge.) A piece's context
// is its address and its deleter is always this file's, as PyTorch requires of an allocator with a
// raw_deleter.
//
// Each piece carries a record of the queues that used it last (memory_order.h).
//
// Three kinds of memory are not charged: memory allocated before a Ledger was opened, memory on GPUs that are
// no node, and memory allocated during the capture of a CUDA graph. Nothing may be evicted during a capture.
// (Before PyTorch 2.13: while any pool of a graph or a MemPool is in use.)
//
// Thread safety: all methods; open() and close() must not run concurrently with any use of CUDA memory.
// Evictions happen outside the caching allocator's lock. Ownership: never destroyed, because its memory may
// outlive every other object.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <span>

#include "device/device_api.h"
#include "torch/cuda/forwarding.h"

namespace innkeeper::torch_layer::cuda_backend {

// Evicts at least `size` bytes from a node, even if it is within its budget. Fails if no block there can
// leave.
using Relief = std::function<Status(NodeId node, Bytes size)>;

// Charges by GPU, and the nodes charged, from open() to close().
struct Ledger {
  static constexpr size_t kGpus = C10_COMPILE_TIME_MAX_GPUS;
  Accountant* accountant = nullptr;
  Relief relief;
  std::array<NodeId, kGpus> nodes;  // By device index; kNoNode: not charged.
  std::array<std::atomic<int64_t>, kGpus> live{};
  std::atomic<bool> open{true};
};

class ChargingAllocator final : public ForwardingAllocator {
 public:
  explicit ChargingAllocator(caching::CUDAAllocator& target) : ForwardingAllocator(target) {}

  // nodes[i] is the node of GPU i. Requires: accountant and relief are never destroyed.
  void open(Accountant* accountant, Relief relief, std::span<const NodeId> nodes);
  // Ends all charging and uncharging.
  void close();
  // Bytes charged for memory that is alive now, counted here (I4: a recount).
  Bytes live(c10::DeviceIndex device) const;
  bool is_captured() const { return captures_.load(std::memory_order_acquire) != 0; }
  caching::CUDAAllocator& target() const { return target_; }
  // Allocates on the current stream for a copy on `first`: that stream alone waits for the memory's users.
  c10::DataPtr allocate_for_copy(size_t size, const c10::Stream& first);
  // Frees memory of such an allocator after `note` has recorded its users. False if `note` failed, or if the
  // memory is another allocator's.
  static bool free_after(Memory& memory, const std::function<bool(const void* data, Bytes size)>& note);

  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* data) override;
  // Waits for every GPU first. PyTorch 2.11 waits for the stream of the memory that it unmaps without making
  // its GPU the current one, and all GPUs' default streams have one handle.
  void emptyCache(c10::MempoolId_t pool) override;
  // The caching allocator recognises its memory by its deleter.
  void recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) override;
  using ForwardingAllocator::recordStream;
  caching::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                  std::shared_ptr<caching::AllocatorState> state) override;
#if INNKEEPER_TORCH_AT_LEAST(2, 13)
  c10::DataPtr allocateWithAddress(size_t size, void* address) override;
  void markCaptureBegin(c10::DeviceIndex device) override;
  void markCaptureEnd(c10::DeviceIndex device) override;
#else
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
#endif

 private:
  Ledger* ledger() const;

  std::atomic<Ledger*> ledger_{nullptr};  // Closed ledgers are kept: memory may still be charged to them.
  std::atomic<int> captures_{0};          // Graphs under capture.
};

}  // namespace innkeeper::torch_layer::cuda_backend
