// Device indices of the managed device.
//
// Plain `import innkeeper` has one device, index 0: the engine chooses the nodes. In a program made for CUDA
// (use_device_per_node()) each node that computes has an index of its own, as GPUs have in CUDA. An index is
// part of a tensor's device, and PyTorch's rules about devices apply to it. To the engine it is the node that
// the tensor prefers: it still evicts the tensor, and runs an operator elsewhere if that node is too small.
//
// Under torchrun an index may also be the process's LOCAL_RANK, because programs number the GPUs of a machine
// by it although the process may see fewer nodes. With one device, this index means that device. Otherwise
// the index keeps its number, and its preferred node is taken modulo the number of nodes.
//
// All functions are thread-safe. The current index is the calling thread's, 0 at first.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <optional>
#include <utility>

#include "base/types.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

namespace detail {
IK_EXPORT extern std::atomic<bool> device_per_node;
// constinit: a read needs no call of an initializer.
IK_EXPORT extern constinit thread_local c10::DeviceIndex current_index;
}  // namespace detail

// Gives each computing node an index, for the rest of the process. Requires: no managed tensor exists yet.
// `visible_gpus`: number of CUDA devices that this process sees, for device_count() before the start.
IK_EXPORT void use_device_per_node(int visible_gpus);
inline bool has_device_per_node() noexcept { return detail::device_per_node.load(std::memory_order_relaxed); }

// Number of devices. Does not start the runtime: before the start it is the number that the configuration
// names, or 1 if the configuration is not valid.
IK_EXPORT c10::DeviceIndex device_count();
// One more than the largest valid index. At least device_count(), and more only for a LOCAL_RANK beyond it.
// PyTorch uses it as the size of arrays that it indexes by device.
c10::DeviceIndex index_limit() noexcept;
// Called by configure(), because the number of devices may have changed. Makes device 0 the calling thread's
// current one.
void forget_device_count();

// Throws c10::Error unless the index is valid, or negative, which means the current one. An index above 0
// starts the runtime, which knows the number of devices.
void check_device_index(c10::DeviceIndex index);
// As check_device_index(), but accepts an index that the configuration has without starting the runtime. A
// program may fork after seeding, and autograd sets the devices of its threads before the first use.
void check_expected_index(c10::DeviceIndex index);
// The device's index, or the current one if it has none; 0 with one device. Throws as check_device_index().
IK_EXPORT c10::DeviceIndex index_of(const std::optional<c10::Device>& device);
c10::Device device_at(c10::DeviceIndex index);

inline c10::DeviceIndex current_index() noexcept { return detail::current_index; }
// A valid index unchanged; the current one for a negative index; 0 with one device.
inline c10::DeviceIndex resolved_index(c10::DeviceIndex index) noexcept {
  return index < 0 || !has_device_per_node() ? current_index() : index;
}
// Makes a valid index current, unless it is negative or there is only one device. Returns the previous one.
inline c10::DeviceIndex exchange_index(c10::DeviceIndex index) noexcept {
  if (index < 0 || !has_device_per_node()) return detail::current_index;
  return std::exchange(detail::current_index, index);
}

// The node that tensors of this index prefer; kNoNode with one device. Starts the runtime.
NodeId node_at(c10::DeviceIndex index);
// The index of a node that computes; 0 with one device.
c10::DeviceIndex index_of_node(NodeId node);

// Makes an index the current one while it lives.
class AtIndex {
 public:
  explicit AtIndex(c10::DeviceIndex index) : before_(exchange_index(index)) {}
  ~AtIndex() { exchange_index(before_); }
  AtIndex(const AtIndex&) = delete;
  AtIndex& operator=(const AtIndex&) = delete;

 private:
  c10::DeviceIndex before_;
};

}  // namespace innkeeper::torch_layer
