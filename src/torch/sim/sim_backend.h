// Simulated accelerators as PyTorch's device "hpu": a spare in-tree device type, taken only if a sim node is
// configured. Code above c10 (device guard, streams, events, allocator, operators) cannot tell them from a
// GPU.
//
// Operators run PyTorch's CPU kernels on the accelerator's bytes, or its meta kernels if accelerators hold no
// data. Only dense tensors are supported: sparse and quantized ones are refused.
//
// Thread safety: install must not run concurrently with any use of the device; the rest may be called from
// any thread.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <span>
#include <vector>

#include "device/device_api.h"
#include "innkeeper/export.h"
#include "sim/accelerator.h"
#include "torch/accelerator/memory_order.h"

namespace innkeeper::torch_layer {
class Backend;
}

namespace innkeeper::torch_layer::sim_backend {

// Simulated accelerators as a kind of accelerator (accelerator/backend.h).
Backend& backend();

// Device hpu:i is accelerators[i], whose node is nodes[i]: every allocator there charges the accountant
// before each allocation. The accountant may be null; else it must never be destroyed. A second call replaces
// all accelerators, and throws if any memory is still alive on the old ones.
IK_EXPORT void install(std::vector<std::shared_ptr<sim::Accelerator>> accelerators, Accountant* accountant,
                       std::span<const NodeId> nodes);

// Whether their memory holds bytes (sim::Options::data). If one accelerator holds none, no accelerator's
// bytes are used.
IK_EXPORT bool has_data() noexcept;
// Number of accelerators; 0 before install.
IK_EXPORT c10::DeviceIndex count() noexcept;
// Throws if there is no such accelerator. The reference is valid until the next install.
IK_EXPORT sim::Accelerator& accelerator(c10::DeviceIndex index);
// As accelerator(), with shared ownership.
IK_EXPORT std::shared_ptr<sim::Accelerator> shared_accelerator(c10::DeviceIndex index);

// While it lives, the calling thread's kernels take the time that the accelerator's rates give, without the
// factors of single operators (cost/truth.h). A probe measures these times.
class IK_EXPORT AtItsRates {
 public:
  AtItsRates();
  ~AtItsRates();
  AtItsRates(const AtItsRates&) = delete;
  AtItsRates& operator=(const AtItsRates&) = delete;
};

// A memory order for a simulated accelerator, whose memory records the queues that used it.
std::unique_ptr<MemoryOrder> make_memory_order(std::shared_ptr<sim::Accelerator> accelerator);

}  // namespace innkeeper::torch_layer::sim_backend
