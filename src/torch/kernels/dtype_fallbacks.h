// Operators whose host kernels lack a dtype that CUDA's have.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace innkeeper::torch_layer {

// Registers the kernel of such an operator; returns false, and does nothing, for other operators. Requires:
// called while the library is loaded.
bool register_dtype_fallbacks(const c10::OperatorHandle& op);

}  // namespace innkeeper::torch_layer
