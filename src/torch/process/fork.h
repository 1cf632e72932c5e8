// A child of fork() has no managed device: its parent's threads, queues and cards are not there, and whoever
// held a lock will never give it back. Every entry refuses in one line, frees do nothing, no lock is waited
// for.
//
// A process that forks before its runtime starts loses nothing: each of the two starts its own.
//
// Thread safety: all functions.
#pragma once

#include "base/thread_annotations.h"

namespace innkeeper::torch_layer {

// Is this a child of a process whose runtime had started?
bool is_forked_child();

// Throws in such a child.
void refuse_in_forked_child();

// From now on a fork() is noticed. Once; later calls do nothing.
void watch_forks();
// What such a child does first: it forgets the runtime (runtime.cc).
void forget_runtime_in_child();
// Is the runtime there, or being started by any thread (runtime.cc)?
bool runtime_is_there();

// A lock that memory of ordinary tensors is freed under, which works in children too: fork() waits until
// no thread holds it. It must be a leaf: nothing is waited for while it is held.
void take_at_fork(Mutex& mutex);

}  // namespace innkeeper::torch_layer
