// c10's device guard, streams and events for simulated accelerators.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device/device_api.h"

namespace innkeeper::torch_layer::sim_backend {

// Registers the guard for DeviceType::HPU. Acts once for the process.
void register_guard();
// The simulator's event behind an event of these devices; null if it was never recorded.
Event event_of(const c10::Event& event);

}  // namespace innkeeper::torch_layer::sim_backend
