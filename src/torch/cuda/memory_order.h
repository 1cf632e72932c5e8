// Who may still touch a card's free memory (device/memory_users.h). PyTorch's caching allocator for CUDA
// orders memory by the stream that it was taken on, so all that a node allocates is taken on its compute
// queue; what other queues do with it is known here.
//
// The charging allocator tells of each piece that it gives out and gets back. Pieces of cards that are no
// nodes are not looked at.
//
// Where the caching allocator unmaps memory it waits for the stream that it was taken on, and for no other:
// before it does, that stream is put behind all others' work on what is free.
//
// Thread safety: all functions.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "device/memory_users.h"

namespace innkeeper::torch_layer::cuda_backend {

// A piece goes back to the caching allocator now.
void note_freed(c10::DeviceIndex index, const void* data, Bytes size);
// A piece was given out by it, to a kernel or to a copy: `stream` waits for those who may still touch it.
// Where that cannot be had, the whole card is waited for.
void order_kernel(c10::DeviceIndex index, const void* data, Bytes size, const c10::Stream& stream) noexcept;
void order_copy(c10::DeviceIndex index, const void* data, Bytes size, const c10::Stream& stream) noexcept;

// While the thread calls the caching allocator, which may unmap memory then.
class MayUnmap {
 public:
  MayUnmap();
  ~MayUnmap();
  MayUnmap(const MayUnmap&) = delete;
  MayUnmap& operator=(const MayUnmap&) = delete;
  // The caching allocator found nothing that suits, on the thread's current card.
  static void begin();

 private:
  MayUnmap* const outer_;
  MemoryUsers* unmapping_ = nullptr;
};

}  // namespace innkeeper::torch_layer::cuda_backend
