// Registration of c10's interfaces for the device, apart from the operators; called by load().
#pragma once

namespace innkeeper::torch_layer {

void register_hooks();  // Implements at::PrivateUse1HooksInterface (hooks.cc).
void register_guard();  // Implements c10::impl::DeviceGuardImplInterface (guard.cc).

}  // namespace innkeeper::torch_layer
