// What only CUDA offers: which cards there are, an allocator that makes room on them, and host memory that
// they copy from at full speed. Everything else reaches a card through c10's generic interfaces, as it
// reaches any accelerator (c10_device.h). Compiled only where PyTorch has CUDA; where the machine then has no
// card, there are no nodes for it.
//
// Random numbers: an operator with a Generator argument gets a CUDA generator whose seed is drawn from the
// thread's stream (random_stream.h), so the numbers are the same on every card and at every budget. What
// draws without such an argument (attention's dropout) finds such a seed in the card's default generator.
//
// Thread safety: install, remove and limit must not run beside anything that uses CUDA memory; the rest may
// be called from any thread. Failures of CUDA itself are thrown as c10::Error.
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

// Replaces `cuda` and `auto` by one node for each visible card and gives each its budget: what is free there
// now, less a reserve, unless the user named one. Fails if a card is not there, too small for its budget, or
// PyTorch's CUDA memory does not come from its native allocator.
Status resolve(MachineSpec& spec);

// The memory that card has.
Bytes capacity(c10::DeviceIndex index);

// How fast it computes: the table's figures where the table has this GPU, otherwise by what the driver says.
cost::GpuModel model(c10::DeviceIndex index);

// Of its memory, by its model `gpu`, and of its link to the host, by what that was made for; 0 where the
// system does not say.
plan::Speed speed(c10::DeviceIndex index, const cost::GpuModel& gpu);

// What rates that were kept must agree with: the GPU, by the UUID that the driver's own tools print, the
// driver, PyTorch, and the link. The rates themselves are left out.
cost::KeptRates rates_of_today(c10::DeviceIndex index);
// Its last level of cache.
Bytes cache(c10::DeviceIndex index);

// Puts the charging allocator (charging_allocator.h) in front of PyTorch's: card i is nodes[i], kNoNode if it
// is none of ours. `relief` evicts so many bytes from a node whatever its budget. Also makes PyTorch give the
// card back when the process ends. Once more: from now on it charges to these.
void install(Accountant* accountant, std::function<Status(NodeId, Bytes)> relief,
             const std::vector<NodeId>& nodes);
// Takes it away, if it is installed; what was allocated through it is freed as before.
void remove();
// Bytes charged for memory of a card that is alive now (I4: a recount).
Bytes live(c10::DeviceIndex index);

// Holds PyTorch's own caching to a card's budget, with some room for its segments being larger than what they
// hold. What libraries allocate past PyTorch is not seen by it.
void limit(c10::DeviceIndex index, Bytes budget);

// After install: takes so many bytes of a card now, for what will be allocated on it. They stay with
// PyTorch's caching allocator, and what it has already counts. Throws where the card has less.
void take(c10::DeviceIndex index, Bytes budget);

// For a card's C10Device: its memory carries its users (torch/cuda/memory_order.h).
std::unique_ptr<MemoryOrder> make_memory_order(c10::DeviceIndex index);

// Page-locked memory, near the cards if all are near the same: copies run concurrently and at the
// link's full speed. Requires: `cards` is not empty.
Slabs::Hooks slab_hooks(std::span<const c10::DeviceIndex> cards);

// A generator for the calling thread's next operator on a card: its numbers depend on the seed alone.
at::Generator generator(c10::DeviceIndex index, uint64_t seed);
// Gives a card's default generator another state; returns the one it had.
PhiloxState exchange_default_generator(c10::DeviceIndex index, PhiloxState state);

// Gives back what libraries of PyTorch keep between operators (cuBLAS's workspaces): it was charged to
// whoever called them first, and comes again at their next use.
void free_workspaces();

// Whether any thread captures a graph on any card; its memory is charged to no node meanwhile.
bool is_any_captured();
// Has the calling thread's calls end no other thread's capture, where one begins beside them.
void spare_captures(c10::DeviceIndex index);

// Whether the calling thread's current stream of a card is being captured for a graph.
bool is_capturing(c10::DeviceIndex index);

}  // namespace innkeeper::torch_layer::cuda_backend
