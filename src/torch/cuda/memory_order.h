// Records the queues that may still touch a GPU's free memory (device/memory_users.h). PyTorch's caching
// allocator for CUDA orders memory by the stream on which it was allocated. So a node allocates all its
// memory on its compute queue, and this file records the uses of other queues.
//
// The charging allocator reports each piece that it hands out and gets back. Pieces of GPUs that are no nodes
// are ignored.
//
// Before the caching allocator unmaps memory, it waits for the stream on which it was allocated, and for no
// other. So before that, this file orders the stream after all other queues' work on free memory.
//
// Thread safety: all functions.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "device/memory_users.h"

namespace innkeeper::torch_layer::cuda_backend {

// Notes a piece that now goes back to the caching allocator.
void note_freed(c10::DeviceIndex index, const void* data, Bytes size);
// Orders `stream`, of a kernel or of a copy, after all work that may still touch a piece that the allocator
// has handed out. If that is impossible, waits for the whole GPU.
void order_kernel(c10::DeviceIndex index, const void* data, Bytes size, const c10::Stream& stream) noexcept;
void order_copy(c10::DeviceIndex index, const void* data, Bytes size, const c10::Stream& stream) noexcept;

// Lives while the thread calls the caching allocator, which may unmap memory then.
class MayUnmap {
 public:
  MayUnmap();
  ~MayUnmap();
  MayUnmap(const MayUnmap&) = delete;
  MayUnmap& operator=(const MayUnmap&) = delete;
  // Called when the caching allocator found no suitable piece on the thread's current GPU.
  static void begin();

 private:
  MayUnmap* const outer_;
  MemoryUsers* unmapping_ = nullptr;
};

}  // namespace innkeeper::torch_layer::cuda_backend
