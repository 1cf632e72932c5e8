// Simulated accelerators as PyTorch's device "hpu": a spare in-tree device type, taken only when a sim node
// is configured. Above c10 (device guard, streams, events, allocator, operators) nothing tells them from a
// GPU.
//
// Operators run PyTorch's CPU kernels on the accelerator's bytes; its meta kernels where accelerators hold no
// data. Dense tensors only: sparse and quantized ones are refused.
//
// Thread safety: install must not run beside anything that uses the device; the rest may be called from any
// thread.
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

// Device hpu:i is accelerators[i], which is nodes[i] to the accountant: it is asked before every allocation
// there, for every allocator. It may be null; else it must stay for good. Once more: replaces them all, and
// throws if any memory is still alive on the old ones.
IK_EXPORT void install(std::vector<std::shared_ptr<sim::Accelerator>> accelerators, Accountant* accountant,
                       std::span<const NodeId> nodes);

// Whether their memory holds bytes (sim::Options::data); if one's does not, none's is used.
IK_EXPORT bool has_data() noexcept;
// How many there are; 0 before install.
IK_EXPORT c10::DeviceIndex count() noexcept;
// Throws if there is no such accelerator. The reference is good until the next install.
IK_EXPORT sim::Accelerator& accelerator(c10::DeviceIndex index);
// As above, sharing ownership.
IK_EXPORT std::shared_ptr<sim::Accelerator> shared_accelerator(c10::DeviceIndex index);

// While it lives, the calling thread's kernels take what the rates of the accelerator say, without the
// factors of single operators (cost/truth.h): as a probe finds them.
class IK_EXPORT AtItsRates {
 public:
  AtItsRates();
  ~AtItsRates();
  AtItsRates(const AtItsRates&) = delete;
  AtItsRates& operator=(const AtItsRates&) = delete;
};

// Their memory knows who used it.
std::unique_ptr<MemoryOrder> make_memory_order(std::shared_ptr<sim::Accelerator> accelerator);

}  // namespace innkeeper::torch_layer::sim_backend
