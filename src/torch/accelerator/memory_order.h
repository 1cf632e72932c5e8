// What an allocator of c10 may know of its memory beyond the order of one stream: who used a piece last,
// queue by queue. Without one, memory is ordered by the compute queue, as every caching allocator does it.
//
// Thread safety: all methods.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <span>

#include "base/types.h"
#include "device/device_api.h"

namespace innkeeper::torch_layer {

class MemoryOrder {
 public:
  virtual ~MemoryOrder() = default;
  // `context` is a DataPtr's of this allocator, of memory that was allocated on some stream: from now on who
  // frees it knows which queues used it.
  virtual void entrust(void* context) const = 0;
  // Frees such memory; it is anybody's as soon as `users` are done. False if it is another allocator's.
  virtual bool free_after(Memory& memory, std::span<c10::Event* const> users) const = 0;
  virtual void set_limit(Bytes limit) const = 0;
};

}  // namespace innkeeper::torch_layer
