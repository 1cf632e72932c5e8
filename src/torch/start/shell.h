// What load() registers of the device's shell: c10's interfaces around the operators.
#pragma once

namespace innkeeper::torch_layer {

void register_hooks();  // at::PrivateUse1HooksInterface (hooks.cc)
void register_guard();  // c10::impl::DeviceGuardImplInterface (guard.cc)

}  // namespace innkeeper::torch_layer
