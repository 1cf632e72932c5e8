// Copies and fills. A copy reads page-locked memory when it runs, any other host memory at once. A copy
// writes page-locked memory when it runs, and the memory holds poison until then; it writes any other host
// memory before the call returns.
#pragma once

#include <cstddef>

#include "runtime/stream.h"

namespace fake_cuda {

Error copy(void* to, const void* from, size_t size, Stream& stream, bool wait);
Error fill(void* data, int value, size_t size, Stream& stream);

}  // namespace fake_cuda
