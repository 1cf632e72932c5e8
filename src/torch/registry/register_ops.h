// Which of PyTorch's operators a backend registers its boxed kernel for, one by one.
//
// A backend fallback alone is not enough: operators with a composite kernel (CompositeExplicitAutograd and
// its NonFunctional kind) would decompose into smaller ones before the backend sees them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// All aten operators with a tensor argument that compute something, have no kernel for `key` yet, and are not
// CompositeImplicitAutograd alone (registering those would take away their gradients). Not: views, factories
// (`*_like`, `new_*`), operators that change a tensor's metadata or storage, copies between devices.
IK_EXPORT std::vector<c10::OperatorHandle> ops_to_register(c10::DispatchKey key);

// Whether an operator with this signature is one that ops_to_register leaves to hand-written kernels.
IK_EXPORT bool needs_own_kernel(const Signature& signature);

}  // namespace innkeeper::torch_layer
