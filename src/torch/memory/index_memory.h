// Bytes of living tensors by device index, on any node: `requested_bytes` of
// torch.cuda.memory_stats(i). They may exceed the node's budget. The engine's Stats count the bytes on a
// node, which its budget limits.
//
// Thread safety: all functions. With one device nothing is counted (handle.cc).
#pragma once

#include <c10/core/Device.h>

#include "base/types.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

struct IndexMemory {
  Bytes now{0};
  Bytes peak{0};           // Maximum of `now` since reset_peak().
  Bytes since_emptied{0};  // Maximum of `now` since note_empty_cache().
};

// Adds a change in size of a block of this index.
void count_bytes(c10::DeviceIndex index, Bytes change) noexcept;
IK_EXPORT IndexMemory index_memory(c10::DeviceIndex index);
IK_EXPORT void reset_peak(c10::DeviceIndex index);
// Notes a call of empty_cache(), which is for all devices.
IK_EXPORT void note_empty_cache();

}  // namespace innkeeper::torch_layer
