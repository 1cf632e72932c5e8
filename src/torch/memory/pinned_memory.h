// Host memory that `pin_memory()` returns on a process whose accelerator is the managed device.
//
// With CUDA it comes from CUDA's own allocator, so that it is really locked. Without, it is ordinary CPU
// memory, and the addresses that were given are remembered: is_pinned() is true for them and for nothing
// else, so programs that check behave as they would on a GPU.
//
// Thread safety: all functions.
#pragma once

#include <c10/core/Allocator.h>

namespace innkeeper::torch_layer {

c10::Allocator* pinned_allocator();
// Cheap: no device is touched unless CUDA is there, and without pinned memory it is one load.
bool is_pinned_address(const void* address);
// Makes it PyTorch's host allocator for the device (torch.accelerator's host memory statistics).
void register_host_allocator();

}  // namespace innkeeper::torch_layer
