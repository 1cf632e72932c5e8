// An operator as its kernel alone: no gradients, no autocast.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace fake_cuda {

using Stack = torch::jit::Stack;

inline void plain_call(const c10::OperatorHandle& op, Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(&stack);
}

}  // namespace fake_cuda
