// Runs a call of PyTorch for core, which knows no exceptions: turns an exception into a Status that names the
// device and the call.
#pragma once

#include <c10/util/Exception.h>

#include "torch/accelerator/current_device.h"
#include "torch/accelerator/device_health.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/registry/unseen.h"

namespace innkeeper::torch_layer {

template <class Function>
auto guarded(DeviceHealth& health, const DeviceCall& call, Function&& function) -> decltype(function()) {
  try {
    const Unseen unseen;
    const DisarmedCpu disarmed;
    return keeping_current_device(health.type(), function);
  } catch (const c10::OutOfMemoryError& error) {
    return Status(Code::out_of_memory, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return health.failure(call, error);
  }
}

}  // namespace innkeeper::torch_layer
