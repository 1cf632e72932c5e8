// Indices of the managed device: there is one, 0. Under torchrun a process may also say its LOCAL_RANK, as
// programs do that number the cards of a machine by it: it means the same device, and where several nodes
// compute, the process's home is the one of that number (home.h).
#pragma once

#include <c10/core/Device.h>

namespace innkeeper::torch_layer {

// Throws unless the index means the one device. `may_be_rank`: where a program chooses its device, not where
// it makes tensors.
void check_device_index(c10::DeviceIndex index, bool may_be_rank = false);

}  // namespace innkeeper::torch_layer
