// Memory of simulated accelerators as c10::DataPtr.
//
// Thread safety: all functions. They hold no lock while they call the accountant, so it may evict, which
// calls the guard, the streams, copies and frees again.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <vector>

#include "device/device_api.h"
#include "sim/accelerator.h"

namespace innkeeper::torch_layer::sim_backend {

// The context of every DataPtr that points to an accelerator's memory, for each device that the DataPtr may
// name.
struct Allocation {
  Allocation(sim::Accelerator* on, void* address, Bytes charged, Accountant* asked, NodeId charged_node,
             c10::DeviceIndex device_index)
      : accelerator(on),
        data(address),
        size(charged),
        accountant(asked),
        node(charged_node),
        index(device_index) {}

  sim::Accelerator* accelerator;
  void* data;
  Bytes size;  // Charged bytes.
  Accountant* accountant;
  NodeId node;
  c10::DeviceIndex index;
  // Queues besides the compute queue that use the memory, one bit each: freeing waits for them (I6).
  std::atomic<uint64_t> queues{0};
  // Whether freeing waits for `users` instead of the compute queue (sim::Accelerator::free_after).
  bool exact = false;
  std::vector<Event> users = {};

  static void release(void* context);
};

// The allocation behind a DataPtr; nullptr if it is not an accelerator's memory.
inline Allocation* allocation_of(const c10::DataPtr& pointer) {
  return pointer.get_deleter() == &Allocation::release ? static_cast<Allocation*>(pointer.get_context())
                                                       : nullptr;
}

// `size` bytes of hpu:index, charged first; a null pointer for 0 bytes. `face`: the device that the DataPtr
// names: hpu:index, or cpu for memory that a CPU kernel requests. Throws c10::OutOfMemoryError.
c10::DataPtr allocate(c10::DeviceIndex index, size_t size, c10::Device face);

// Memory of hpu:index for a CPU kernel that runs there (ArmedCpu::Source).
inline c10::DataPtr allocate_for_cpu(c10::DeviceIndex index, size_t size) {
  return allocate(index, size, c10::Device(c10::kCPU));
}

// The allocator of hpu tensors: allocates on the current device. Never destroyed.
c10::DeviceAllocator& device_allocator();

}  // namespace innkeeper::torch_layer::sim_backend
