#include "torch/load.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>

#include <mutex>

#include "innkeeper/torch/runtime.h"
#include "torch/cpu_allocator.h"
#include "torch/fallback.h"
#include "torch/handle.h"
#include "torch/shell.h"

namespace innkeeper::torch_layer {

void load() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("managed");
    register_hooks();
    register_guard();
    c10::SetAllocator(kManagedType, handle_allocator());
    install_cpu_allocator();
    register_operators();
  });
}

}  // namespace innkeeper::torch_layer
