// PyTorch's allocator for the managed device: it makes handles, and answers torch.accelerator.memory_*.
//
// Its memory statistics are those of all computing nodes together: the accelerators if there are any, else
// the host. allocated == reserved == bytes resident there. The peak is the sum of the nodes' peaks, which is
// an upper bound if there are several. It does not count allocations.
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
