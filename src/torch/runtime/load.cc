#include "torch/runtime/load.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>

#include <mutex>

#include "innkeeper/torch/managed.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/memory/handle.h"
#include "torch/operator/fallback.h"
#include "torch/runtime/shell.h"
#ifdef INNKEEPER_WITH_CUDA
#include "torch/cuda/autograd_streams.h"
#endif

namespace innkeeper {
namespace torch_layer {

void load() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("managed");
    register_hooks();
    register_guard();
    c10::SetAllocator(kManagedType, handle_allocator());
    install_cpu_allocator();
    register_operators();
#ifdef INNKEEPER_WITH_CUDA
    cuda_backend::keep_autograd_streams();
#endif
  });
}

namespace {

// A program that links the library has the device before main(). Where that fails (another backend has the
// key) a program may do without: who asks for the device is told.
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
