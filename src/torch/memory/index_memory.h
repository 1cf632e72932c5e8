// Bytes of living tensors by device index, as torch.cuda.memory_allocated(i) counts them: where a program has
// several devices, a tensor counts for its index, wherever the engine keeps its bytes. (What is on a node, which
// its budget limits, is in the engine's Stats.)
//
// Thread safety: all functions. Counts nothing with one device.
#pragma once

#include <c10/core/Device.h>

#include "base/types.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

struct IndexMemory {
  Bytes allocated{0};
  Bytes peak{0};           // of allocated, since reset_peaks()
  Bytes reserved{0};       // the most that was allocated since empty_reserved()
  Bytes peak_reserved{0};  // of reserved, since reset_peaks()
};

// A block of this index has become so many bytes larger, or smaller.
void count_bytes(c10::DeviceIndex index, Bytes change) noexcept;
IK_EXPORT IndexMemory index_memory(c10::DeviceIndex index);
IK_EXPORT void reset_peaks(c10::DeviceIndex index);
// For all devices: nothing is reserved but what is allocated.
IK_EXPORT void empty_reserved();

}  // namespace innkeeper::torch_layer
