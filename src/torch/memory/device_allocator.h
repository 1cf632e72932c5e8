// PyTorch's allocator for the managed device: it makes handles, and answers torch.accelerator.memory_*.
//
// What it says of memory is what the nodes that compute hold together: an accelerator's memory where there
// are accelerators, else the host's. allocated == reserved == bytes resident there; the peak is the sum of
// the nodes' peaks, so an upper bound where there are several. Counts of allocations are not kept.
//
// Thread safety: all methods.
#pragma once

#include <c10/core/Allocator.h>

#include "base/types.h"
#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {

// A data pointer of this device index whose context is a new block without any replica. Starts the runtime.
c10::DataPtr make_handle_pointer(Bytes size, c10::DeviceIndex index);

}  // namespace innkeeper::torch_layer
