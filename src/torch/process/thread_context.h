// The calling thread's state on the managed device: its preferred node and its random stream. Threads of
// autograd find here the state of the thread for which they act.
//
// With autograd's device thread on (it is off unless the user turns it on), a backward pass runs on a thread
// of autograd's. PyTorch carries the caller's ThreadLocalDebugInfo there, and the context with it.
//
// Thread safety: only its own thread changes a context; the threads that act for it read it.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>

#include "base/types.h"

namespace innkeeper::torch_layer {

class RandomStream;

struct ThreadContext final : c10::DebugInfoBase {
  std::atomic<uint64_t> home{0};  // Preferred node as home.cc packs it; 0 is none.
  std::atomic<RandomStream*> stream{nullptr};
};

// The calling thread's own context.
ThreadContext& own_context();
// The context of the thread for which the calling one acts; null if it acts for itself.
const ThreadContext* callers_context();
// Makes the calling thread's context travel from here on. False while that is impossible: a profiler, for
// example, has put an entry of its own into the thread's ThreadLocalDebugInfo, and the context cannot go
// below it.
bool publish_context();

}  // namespace innkeeper::torch_layer
