// Features that only CUDA offers: a list of GPUs, an allocator that makes free space on them, and host memory
// that they copy at full speed. All other code reaches a GPU through c10's generic interfaces, as it reaches
// any accelerator (c10_device.h). Compiled only if PyTorch has CUDA; on a machine without a GPU it makes no
// nodes.
//
// Random numbers: an operator with a Generator argument gets a CUDA generator whose seed is drawn from the
// thread's stream (random_stream.h). So the numbers are the same on every GPU and with every budget. An
// operator that draws without such an argument (attention's dropout) finds such a seed in the GPU's default
// generator.
//
// Thread safety: install, remove and limit must not run concurrently with any use of CUDA memory; the rest
// may be called from any thread. Failures of CUDA itself are thrown as c10::Error.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/machine.h"
#include "cost/gpu_model.h"
#include "cost/kept_rates.h"
#include "device/device_api.h"
#include "device/slabs.h"
#include "plan/speed.h"
#include "torch/accelerator/memory_order.h"
#include "torch/accelerator/philox_state.h"

namespace innkeeper::torch_layer {
class Backend;
}

namespace innkeeper::torch_layer::cuda_backend {

// CUDA's GPUs as a kind of accelerator (accelerator/backend.h).
Backend& backend();

// Replaces `cuda` and `auto` by one node for each visible GPU and sets each budget. The default budget is the
// GPU's memory that is free now, less a reserve. Fails if a GPU does not exist or is smaller than its budget,
// or if PyTorch's CUDA memory does not come from its native allocator.
Status resolve(MachineSpec& spec);

// The GPU's memory, bytes.
Bytes capacity(c10::DeviceIndex index);

// The GPU's speed: from the table if it lists this GPU, otherwise computed from the driver's figures.
cost::GpuModel model(c10::DeviceIndex index);

// Speed of the GPU's memory, from its model `gpu`, and of its link to the host, from the link's
// specification; 0 if the system does not tell it.
plan::Speed speed(c10::DeviceIndex index, const cost::GpuModel& gpu);

// Today's identity of the GPU, with which stored rates must agree: the GPU, by the UUID that the driver's own
// tools print, the driver, PyTorch, and the link. It contains no rates.
cost::KeptRates rates_of_today(c10::DeviceIndex index);
// Size of the GPU's last-level cache.
Bytes cache(c10::DeviceIndex index);

// Puts the charging allocator (charging_allocator.h) in front of PyTorch's. nodes[i] is the node of GPU i,
// kNoNode if that is no node of this process. `relief` evicts bytes from a node, even if it is within its
// budget. Also restores PyTorch's allocator when the process ends. A second call changes the nodes that are
// charged.
void install(Accountant* accountant, std::function<Status(NodeId, Bytes)> relief,
             const std::vector<NodeId>& nodes);
// Removes it, if it is installed; memory that was allocated through it is freed as before.
void remove();
// Bytes charged for memory of a GPU that is alive now (I4: a recount).
Bytes live(c10::DeviceIndex index);

// Limits PyTorch's own caching to a GPU's budget, with some more bytes because its segments are larger than
// their contents. It does not cover memory that libraries allocate without PyTorch.
void limit(c10::DeviceIndex index, Bytes budget);

// Takes `budget` bytes of a GPU now, for later allocations on it. They stay with PyTorch's caching allocator,
// and the bytes that it already holds count. Throws if the GPU has less. Requires: after install.
void take(c10::DeviceIndex index, Bytes budget);

// The memory order of a GPU's C10Device: its memory carries its users (torch/cuda/memory_order.h).
std::unique_ptr<MemoryOrder> make_memory_order(c10::DeviceIndex index);

// Page-locked memory, on the NUMA node of the GPUs if they share one: copies run concurrently and at the
// link's full speed. Requires: `gpus` is not empty.
Slabs::Hooks slab_hooks(std::span<const c10::DeviceIndex> gpus);

// A generator for the calling thread's next operator on a GPU; its numbers depend only on the seed.
at::Generator generator(c10::DeviceIndex index, uint64_t seed);
// Gives a GPU's default generator another state; returns its previous state.
PhiloxState exchange_default_generator(c10::DeviceIndex index, PhiloxState state);

// Frees memory that libraries of PyTorch keep between operators (cuBLAS's workspaces). It was charged to the
// node of the first caller, and the library allocates it again at its next use.
void free_workspaces();

// Whether any thread captures a graph on any GPU; the capture's memory is charged to no node.
bool is_any_captured();
// Makes the calling thread's calls leave a concurrent capture of another thread intact.
void spare_captures(c10::DeviceIndex index);

// Whether the calling thread's current stream of a GPU is being captured for a graph.
bool is_capturing(c10::DeviceIndex index);

}  // namespace innkeeper::torch_layer::cuda_backend
