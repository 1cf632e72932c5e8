// Host memory that `pin_memory()` returns on a process whose accelerator is the managed device.
//
// With CUDA, the memory comes from CUDA's own allocator, so that it is really locked. Without CUDA, it is
// ordinary CPU memory. A table holds its addresses, and is_pinned() is true for these addresses alone, so
// programs that check it behave as on a GPU.
//
// Thread safety: all functions.
#pragma once

#include <c10/core/Allocator.h>

namespace innkeeper::torch_layer {

c10::Allocator* pinned_allocator();
// Cheap: it touches no device unless the process has CUDA, and without pinned memory it costs one load.
bool is_pinned_address(const void* address);
// Registers it as PyTorch's host allocator for the device (torch.accelerator's host memory statistics).
void register_host_allocator();

}  // namespace innkeeper::torch_layer
