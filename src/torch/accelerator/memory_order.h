// Who used a piece of an accelerator's memory last, queue by queue: what an allocator of c10, which orders
// memory by one stream, does not know.
//
// Thread safety: all methods; attach() before the others. What PyTorch throws, they throw.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <memory>
#include <span>

#include "base/types.h"
#include "device/device_api.h"
#include "torch/accelerator/device_health.h"

namespace innkeeper::torch_layer {

class MemoryOrder {
 public:
  virtual ~MemoryOrder() = default;
  virtual void attach(const c10::Stream& /*compute*/, std::shared_ptr<DeviceHealth>) {}
  // Memory that work on `first` may touch from now on, before all others.
  virtual c10::DataPtr allocate(size_t size, const c10::Stream& first) const = 0;
  // Frees such memory; it is free as soon as `users` are done. False, and nothing is freed, if that
  // cannot be had: it is another allocator's, or just now the compute queue must know of them.
  virtual bool free_after(Memory& memory, std::span<const Event> users) const = 0;
  // An event was recorded on the compute queue, when the answer to number() was this.
  virtual uint64_t number() const { return 0; }
  virtual void recorded(uint64_t /*number*/, const Event&) const {}
  virtual void set_limit(Bytes /*limit*/) const {}
};

}  // namespace innkeeper::torch_layer
