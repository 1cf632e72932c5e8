#include "torch/start/load.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <mutex>
#include <stdexcept>

#include "innkeeper/torch/managed.h"
#include "torch/accelerator/backend.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/memory/handle.h"
#include "torch/operator/fallback.h"
#include "torch/start/backends.h"
#include "torch/start/registration.h"
#include "torch/start/shell.h"

namespace innkeeper {
namespace torch_layer {
namespace {

// Python refuses a backend that has renamed itself by its name (_register.py).
void check_that_the_slot_is_free() {
  if (at::isPrivateUse1HooksRegistered() || c10::impl::hasDeviceGuardImpl(kManagedType))
    throw std::runtime_error(
        "innkeeper cannot be loaded beside another out-of-tree device, which is registered already: "
        "PyTorch has one slot for such devices");
}

}  // namespace

void load() {
  static std::once_flag once;
  std::call_once(once, [] {
    add_backends();
    check_that_the_slot_is_free();
    c10::register_privateuse1_backend("managed");
    register_hooks();
    register_guard();
    c10::SetAllocator(kManagedType, handle_allocator());
    install_cpu_allocator();
    register_operators();
    for (Backend* const backend : backends()) backend->load();
  });
}

namespace {

// A program that links the library has the device before main(). If that fails (another backend has the key),
// the program may not need the device; a call of device() throws the error.
[[maybe_unused]] const bool loaded = [] {
  try {
    load();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}();

}  // namespace
}  // namespace torch_layer

c10::Device device() {
  torch_layer::load();
  return torch_layer::managed_device();
}

}  // namespace innkeeper
