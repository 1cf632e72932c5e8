// An allocator in front of PyTorch's caching allocator for CUDA that charges what is allocated to nodes, and
// makes room before it asks for the memory: for replicas, for kernels' results and scratch
// memory, and for the program's own CUDA tensors, since they take the same bytes.
//
// If the caching allocator is out of memory although the budget has room (another process took it, or its
// segments are fragmented), replicas are evicted and the allocation, never the operator, is tried again (I9).
//
// Charged are multiples of 512 bytes, which is what the caching allocator counts in where its segments may
// grow (install asks for that; with expandable_segments:False a piece may take 1 MiB more than is charged). A
// piece's context is its address and its deleter is always ours, as PyTorch asks of an allocator with a
// raw_deleter.
//
// Who used a piece last goes with it (memory_order.h).
//
// Not charged: memory that was allocated before a Ledger was opened, on cards that are no node, and while a
// CUDA graph is captured, when nothing may be evicted (before PyTorch 2.13: while any pool of a graph or a
// MemPool is in use).
//
// Thread safety: all methods; open() and close() must not run beside anything that uses CUDA memory. Evicting
// happens outside the caching allocator's lock. Ownership: never destroyed, as memory may outlive everything.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <span>

#include "device/device_api.h"
#include "torch/cuda/forwarding.h"

namespace innkeeper::torch_layer::cuda_backend {

// Evicts at least so many bytes from a node, whatever its budget. Fails if nothing there can leave.
using Relief = std::function<Status(NodeId node, Bytes size)>;

// What is charged to whom, from open() to close().
struct Ledger {
  static constexpr size_t kCards = C10_COMPILE_TIME_MAX_GPUS;
  Accountant* accountant = nullptr;
  Relief relief;
  std::array<NodeId, kCards> nodes;  // by device index; kNoNode: not charged
  std::array<std::atomic<int64_t>, kCards> live{};
  std::atomic<bool> open{true};
};

class ChargingAllocator final : public ForwardingAllocator {
 public:
  explicit ChargingAllocator(caching::CUDAAllocator& target) : ForwardingAllocator(target) {}

  // nodes[i] is card i. Both must stay for good.
  void open(Accountant* accountant, Relief relief, std::span<const NodeId> nodes);
  // From now on nothing is charged, nor uncharged.
  void close();
  // Bytes charged for memory that is alive now, counted here (I4: a recount).
  Bytes live(c10::DeviceIndex device) const;
  bool is_captured() const { return captures_.load(std::memory_order_acquire) != 0; }
  caching::CUDAAllocator& target() const { return target_; }
  // On the current stream, for a copy that `first` makes: that stream alone waits for who used the memory.
  c10::DataPtr allocate_for_copy(size_t size, const c10::Stream& first);
  // Frees memory of such an allocator once `note` has noted who still uses it. False if `note` could not, or
  // it is another's memory.
  static bool free_after(Memory& memory, const std::function<bool(const void* data, Bytes size)>& note);

  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* data) override;
  // Waits for every card first. PyTorch 2.11 waits for the stream of what it unmaps without making the card
  // the current one, and all cards' default streams have one handle.
  void emptyCache(c10::MempoolId_t pool) override;
  // The caching allocator knows its memory by its deleter.
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

  std::atomic<Ledger*> ledger_{nullptr};  // old ones are kept: memory may still be charged to them
  std::atomic<int> captures_{0};          // graphs that are captured now
};

}  // namespace innkeeper::torch_layer::cuda_backend
