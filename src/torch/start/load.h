// Registers the managed device with PyTorch: its name, hooks, guard, allocators and operators.
#pragma once

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// Acts once for the process; later calls do nothing. Starts no runtime and reads no setting. Throws if
// another backend has the PrivateUse1 key already.
IK_EXPORT void load();

}  // namespace innkeeper::torch_layer
