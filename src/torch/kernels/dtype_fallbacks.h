// Operators whose host kernels lack a dtype that CUDA's have.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace innkeeper::torch_layer {

// Registers such an operator's kernel; false, and nothing done, if it is none. At load.
bool register_dtype_fallbacks(const c10::OperatorHandle& op);

}  // namespace innkeeper::torch_layer
