// Functions for tests and for the kernels that a real runtime does not offer. All are C functions, to be
// reached through ctypes.
#pragma once

#include <cstddef>

extern "C" {

long fake_cuda_violations();
void fake_cuda_forget_violations();

// Fails with `error`, once, the call of that name ("" for any) after `skip` others. `effect`: 0: none; 1: the
// GPU answers every later call so (as after an illegal access); 2: the same, for a GPU that has fallen off
// the bus.
void fake_cuda_fail(const char* name, long skip, int error, int effect);
void fake_cuda_cancel_failures();
long fake_cuda_failures_left();
const char* fake_cuda_failed_call();  // Name of the failed call; "" if none failed.
void fake_cuda_forget_failed_call();
long fake_cuda_calls();
void fake_cuda_break(int gpu, int error);
void fake_cuda_repair(int gpu);
int fake_cuda_broken(int gpu);

void fake_cuda_set_others(int gpu, size_t bytes);
size_t fake_cuda_used(int gpu);
size_t fake_cuda_locked_bytes();
size_t fake_cuda_pending();
void fake_cuda_run();                              // Runs all pending work.
void fake_cuda_set_mode(int mode, unsigned seed);  // Mode: 0 late, 1 early, 2 random.

// Enqueues a kernel: run(data) when the stream reaches it, forget(data) when it can never run. Counts as
// cudaLaunchKernel.
int fake_cuda_launch(void* stream, void (*run)(void*), void* data, void (*forget)(void*));
// Address of device memory's bytes, for a running kernel. Null if the kernel may not touch them.
char* fake_cuda_open(const void* data, size_t size);
}
