// Memory of the GPUs. A device address lies in a window that faults on access (a host that touches it dies,
// as with a real GPU); its bytes are at the same distance in a second window. Fresh memory is poison.
// Addresses are never given out twice, so any access to freed memory is noticed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi.h"

namespace fake_cuda {

inline constexpr size_t kPage = size_t{2} << 20;  // memory is given out in such pieces
inline constexpr unsigned char kPoison = 0xff;

inline size_t round_to_page(size_t size) { return (size + kPage - 1) & ~(kPage - 1); }

bool is_device_address(const void* data);

// cudaMalloc and cudaFree.
Error allocate(int gpu, size_t size, void** data);
Error release(void* data);

// Virtual memory: addresses, physical memory, and one over the other.
uintptr_t reserve_addresses(size_t size);
Error create_physical(int gpu, size_t size, uint64_t* handle);
Error release_physical(uint64_t handle);
Error map_physical(uintptr_t at, size_t size, uint64_t handle);
Error unmap_physical(uintptr_t at, size_t size);

// The GPU whose memory is there; -1 if none is.
int gpu_of(const void* data);
// Where the bytes of a range are. Null, a violation and the GPU broken, if not all of it is there. `gpu`:
// whose kernel or copy this is (-1: a copy by the driver, which reaches everything).
char* bytes_of(const void* data, size_t size, int gpu, const char* what);
void poison_gpu(int gpu);

}  // namespace fake_cuda
