// The PyTorch operators for which a backend registers its boxed kernel one by one.
//
// A backend fallback alone is not enough: operators with a composite kernel (CompositeExplicitAutograd and
// its NonFunctional kind) would decompose into smaller ones before the backend sees them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// All aten operators with a tensor argument that compute, have no kernel for `key` yet, and are not
// CompositeImplicitAutograd alone (a kernel for such an operator would replace its gradient). Without views,
// factories (`*_like`, `new_*`), operators that change a tensor's metadata or storage, and copies between
// devices.
IK_EXPORT std::vector<c10::OperatorHandle> ops_to_register(c10::DispatchKey key);

// Whether ops_to_register leaves operators with this signature to hand-written kernels.
IK_EXPORT bool needs_own_kernel(const Signature& signature);

}  // namespace innkeeper::torch_layer
