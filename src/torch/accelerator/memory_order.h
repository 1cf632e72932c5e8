// The queues that last used a piece of an accelerator's memory. An allocator of c10 orders memory by one
// stream and does not know the others.
//
// Thread safety: all methods; attach() before the others. They throw PyTorch's exceptions.
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
  // Memory that work on `first` may touch from now on, before work on other queues.
  virtual c10::DataPtr allocate(size_t size, const c10::Stream& first) const = 0;
  // Frees such memory; it is free as soon as `users` are done. False, and nothing is freed, if that is
  // impossible: the memory is another allocator's, or the compute queue must be ordered after the users now.
  virtual bool free_after(Memory& memory, std::span<const Event> users) const = 0;
  // Notes an event that was recorded on the compute queue after number() had returned `number`.
  virtual uint64_t number() const { return 0; }
  virtual void recorded(uint64_t /*number*/, const Event&) const {}
  virtual void set_limit(Bytes /*limit*/) const {}
};

}  // namespace innkeeper::torch_layer
