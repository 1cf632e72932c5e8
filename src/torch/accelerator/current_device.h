// Keeps the thread's current device of a type across calls that may throw: PyTorch's guards restore it after
// a call to the vendor's runtime only if that call succeeds.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace innkeeper::torch_layer {

// Returns the result of `function`. If it throws, restores the current device.
template <class Function>
auto keeping_current_device(c10::DeviceType type, const Function& function) -> decltype(function()) {
  const c10::impl::VirtualGuardImpl guard(type);
  const c10::Device current = guard.getDevice();
  try {
    return function();
  } catch (...) {
    guard.uncheckedSetDevice(current);
    throw;
  }
}

}  // namespace innkeeper::torch_layer
