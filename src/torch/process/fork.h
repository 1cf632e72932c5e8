// A child of fork() has no managed device: it lacks its parent's threads, queues and GPUs, and a lock that
// another thread held at the fork is never released. In the child every entry point throws an error of one
// line, frees do nothing, and no function waits for a lock.
//
// A process that forks before its runtime starts loses nothing: parent and child each start their own.
//
// Thread safety: all functions.
#pragma once

#include "base/thread_annotations.h"

namespace innkeeper::torch_layer {

// Whether this is a child of a process whose runtime had started.
bool is_forked_child();

// Throws in such a child.
void refuse_in_forked_child();

// Makes every later fork() known to this file. Acts once; later calls do nothing.
void watch_forks();
// Forgets the runtime (runtime.cc); the child's first act.
void forget_runtime_in_child();
// Whether the runtime exists, or any thread is starting it (runtime.cc).
bool runtime_is_there();

// Registers a lock under which memory of ordinary tensors is freed, so that it works in children too: fork()
// waits until no thread holds it. It must be a leaf: its holder waits for nothing.
void take_at_fork(Mutex& mutex);

}  // namespace innkeeper::torch_layer
