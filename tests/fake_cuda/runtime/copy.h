// Copies and fills. From page-locked memory the bytes are read when the copy runs, from any other at once;
// into page-locked memory they are written when it runs, and until then it holds poison; into any other,
// before it returns.
#pragma once

#include <cstddef>

#include "runtime/stream.h"

namespace fake_cuda {

Error copy(void* to, const void* from, size_t size, Stream& stream, bool wait);
Error fill(void* data, int value, size_t size, Stream& stream);

}  // namespace fake_cuda
