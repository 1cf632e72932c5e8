// The thread's current device of a type, kept across calls that may throw: PyTorch's guards change it back
// behind a call to the vendor's runtime only if that goes well.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace innkeeper::torch_layer {

// What `function` returns. Where it throws, the current device is what it was before.
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
