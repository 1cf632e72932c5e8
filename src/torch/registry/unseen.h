// While it lives, the user's modes and tools on the calling thread do not see the operators that the thread
// runs: dispatch modes and fake tensors, functional transforms, tracers, autograd, autocast, profilers.
//
// For the engine's own operators within an operator or a verb: moving bytes, resizing storages. (A kernel
// that the dispatcher called is below the modes already.)
//
// Thread safety: none; an object belongs to one thread.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace innkeeper::torch_layer {

class Unseen {
 public:
  Unseen() : keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect), kAboveBackends) {}

 private:
  // All of these work by keys that a thread adds to those of its operators; autograd's and autocast's come
  // from the tensors.
  static constexpr c10::DispatchKeySet kAboveBackends = c10::default_excluded_set |
                                                        c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                                        c10::autocast_dispatch_keyset;

  const c10::impl::ForceDispatchKeyGuard keys_;
  const at::DisableRecordFunctionGuard records_;
};

}  // namespace innkeeper::torch_layer
