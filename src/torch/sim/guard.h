// c10's device guard, streams and events for simulated accelerators.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace innkeeper::torch_layer::sim_backend {

// Registers the guard for DeviceType::HPU. Once for the process.
void register_guard();

}  // namespace innkeeper::torch_layer::sim_backend
