// What the calling thread has on the managed device: its home and the random stream that it draws from; and
// how autograd's threads find those of the thread they act for.
//
// With autograd's device thread on (it is off unless the user wants it), a backward pass runs
// on a thread of autograd's. PyTorch carries the caller's ThreadLocalDebugInfo there, and our context with
// it.
//
// Thread safety: a context is changed by its own thread alone and read by those that act for it.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>

#include "base/types.h"

namespace innkeeper::torch_layer {

class RandomStream;

struct ThreadContext final : c10::DebugInfoBase {
  std::atomic<uint64_t> home{0};  // as home.cc packs it; 0 is none
  std::atomic<RandomStream*> stream{nullptr};
};

// The calling thread's own.
ThreadContext& own_context();
// That of the thread which the calling one acts for, null if it acts for itself.
const ThreadContext* callers_context();
// Lets the calling thread's context travel from here on. False where that has to wait: while others (a
// profiler) have put something of theirs into the thread's ThreadLocalDebugInfo, ours cannot go below it.
bool publish_context();

}  // namespace innkeeper::torch_layer
