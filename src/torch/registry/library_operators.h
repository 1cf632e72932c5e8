// Operators of libraries that choose by device: those with a general kernel (CompositeExplicitAutograd,
// torch.library's "default"; or CompositeImplicitAutograd) beside one for CUDA or the CPU.
//
// A backend's fallback is not asked for them: its tensors would be given the general kernel, which computes
// by other steps, and often to other bits. So each gets the backend's kernel, as PyTorch's operators do.
//
// A library may give an operator its kernels at any time, in any order, and may define it again under the
// same name. There is no notice; who learns of a new kernel calls look_again().
//
// Thread safety: all may be called from any thread.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <c10/core/DispatchKey.h>

#include <string>

#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// Has such operators run `kernel` at `key`, those that there are and those that come. It is to read the
// schema at each call. Once for each key.
IK_EXPORT void register_for_libraries(c10::DispatchKey key, const c10::KernelFunction& kernel,
                                      const char* what);

// Registers the kernels for one operator, if it has come to choose by device.
IK_EXPORT void look_again(const std::string& name, const std::string& overload);

// The same for all operators.
IK_EXPORT void look_again();

// The same, where any operator was defined since.
IK_EXPORT void look_at_new();

}  // namespace innkeeper::torch_layer
