// Every function of the C interface goes through here. It handles the lock, the state of the process (forked,
// at its end), a driver that is too old, ordered failures, a broken GPU, the thread's last error.
#pragma once

#include <string>
#include <utility>

#include "runtime/abi.h"
#include "runtime/machine.h"

namespace fake_cuda {

enum class Needs {
  nothing,  // A call that reports known facts and never fails.
  // A call for the GPU that the thread has chosen. It fails when ordered by name, not under an order for any
  // call: PyTorch makes it in destructors and ends the process where it fails, even if another part uses the
  // GPU.
  choice,
  driver,  // A call on the process: fails by order alone.
  gpu,     // A call on the calling thread's GPU: fails by order, and while the GPU is broken.
};

// Effect of an ordered failure on the GPU.
enum class Effect { once, broken, lost };

// Fails with `error`, once, the call of that name ("" for any) after `skip` others.
void order_failure(const char* name, long skip, Error error, Effect effect);
void cancel_failures();
long failures_left();
std::string failed_call();  // Name of the last call that was made to fail.
void forget_failed_call();
long calls();  // Number of calls so far that could have been made to fail.

Error& last_error();  // Error of the calling thread.

// The error with which the call must end before it does anything; kSuccess if it may go on.
Error begin_call(const char* name, Needs needs);

// A call of the driver, which does not know the runtime's last error.
template <class Body>
Error driver_call(const char* name, Needs needs, Body&& body) {
  const std::lock_guard<std::recursive_mutex> lock(machine_mutex());
  const Error error = begin_call(name, needs);
  return error == kSuccess ? std::forward<Body>(body)() : error;
}

template <class Body>
Error call(const char* name, Needs needs, Body&& body) {
  const Error error = driver_call(name, needs, std::forward<Body>(body));
  if (error != kSuccess) last_error() = error;
  return error;
}

}  // namespace fake_cuda
