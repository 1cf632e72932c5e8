// Operators of libraries that choose their kernel by device: those with a general kernel
// (CompositeExplicitAutograd, torch.library's "default"; or CompositeImplicitAutograd) beside one for CUDA or
// the CPU.
//
// The dispatcher does not use a backend's fallback for them. It would run the general kernel, which computes
// by other steps, and often gives other bits. So each gets the backend's kernel, as PyTorch's operators do.
//
// A library may give an operator its kernels at any time, in any order, and may define it again under the
// same name. PyTorch sends no notice of a new kernel; code that learns of one calls look_again().
//
// Thread safety: all functions.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <c10/core/DispatchKey.h>

#include <string>

#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// Makes all such operators, present and future, run `kernel` at `key`. Requires: the kernel reads the schema
// at each call; called once for each key.
IK_EXPORT void register_for_libraries(c10::DispatchKey key, const c10::KernelFunction& kernel,
                                      const char* what);

// Registers the kernels for one operator, if it now chooses by device.
IK_EXPORT void look_again(const std::string& name, const std::string& overload);

// Registers the kernels for all operators that now choose by device.
IK_EXPORT void look_again();

// As look_again(), if any operator was defined since the last look.
IK_EXPORT void look_at_new();

}  // namespace innkeeper::torch_layer
