// Work that only takes time: `torch.cuda._sleep`, with which tests and benchmarks keep a GPU busy.
#pragma once

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// Keeps the current device's compute queue busy for `seconds`: a simulated GPU by its clock, the host by
// sleeping. A real GPU has PyTorch's own function. Throws c10::Error for a negative number.
IK_EXPORT void keep_busy(double seconds);

}  // namespace innkeeper::torch_layer
