// Page-locked host memory. Other host memory is staged, as a real driver does it: read before a copy from it
// returns, written before a copy to it returns.
#pragma once

#include <cstddef>

#include "runtime/abi.h"

namespace fake_cuda {

Error lock_pages(void* data, size_t size);  // Locks the caller's own memory.
Error unlock_pages(void* data);
Error allocate_locked(void** data, size_t size);
Error free_locked(void* data);

bool is_locked(const void* data);
// All of the range is locked by one call, or none of it is: a copy may not run over the end.
bool lies_well(const void* data, size_t size);
size_t locked_bytes();

}  // namespace fake_cuda
