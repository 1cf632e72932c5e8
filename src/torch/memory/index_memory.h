// Bytes of living tensors by device index, wherever the engine keeps them: `requested_bytes` of
// torch.cuda.memory_stats(i). They may exceed the node's budget. What is on a node, which its budget limits,
// is in the engine's Stats.
//
// Thread safety: all functions. With one device nothing is counted (handle.cc).
#pragma once

#include <c10/core/Device.h>

#include "base/types.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

struct IndexMemory {
  Bytes now{0};
  Bytes peak{0};           // since reset_peak()
  Bytes since_emptied{0};  // the most since note_empty_cache()
};

// A block of this index has become so many bytes larger, or smaller.
void count_bytes(c10::DeviceIndex index, Bytes change) noexcept;
IK_EXPORT IndexMemory index_memory(c10::DeviceIndex index);
IK_EXPORT void reset_peak(c10::DeviceIndex index);
// empty_cache() has been called, which is for all devices.
IK_EXPORT void note_empty_cache();

}  // namespace innkeeper::torch_layer
