// What differs between the versions of PyTorch that are supported (2.11 to the newest), in one place.
// Everything else in src/torch uses only what all of them have.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <memory>
#include <string_view>

// True where PyTorch is at least this version: INNKEEPER_TORCH_AT_LEAST(2, 13).
#define INNKEEPER_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !INNKEEPER_TORCH_AT_LEAST(2, 13)
namespace innkeeper::torch_layer {
// While there were named dimensions, the lists for autocast named them, without their namespace.
using at::DimnameList;
}  // namespace innkeeper::torch_layer
#endif

namespace innkeeper::torch_layer::compat {

// Ours among the kinds of what travels with a thread's work to other threads.
#if INNKEEPER_TORCH_AT_LEAST(2, 13)
inline constexpr std::string_view kContextName = "INNKEEPER_THREAD_CONTEXT";
inline constexpr c10::DebugInfoKind kContextKind(&kContextName);
#else  // an enumeration with none for backends; this one is for PyTorch's own tests
inline constexpr auto kContextKind = c10::DebugInfoKind::TEST_INFO_2;
#endif

// Whether a packed sequence of equally long ones goes through oneDNN's LSTM on a CPU, as a padded one does.
inline constexpr bool kPadsEquallyLong = INNKEEPER_TORCH_AT_LEAST(2, 13);

// Makes `Hooks` answer for DeviceType::HPU. PyTorch asks the registry at the first use of the hooks and keeps
// the answer, so this must come before any: afterwards it has no effect.
template <class Hooks>
void register_hpu_hooks() {
  at::HPUHooksRegistry()->Register(
      "HPUHooks",
      [](at::HPUHooksArgs) -> std::unique_ptr<at::HPUHooksInterface> { return std::make_unique<Hooks>(); });
}

}  // namespace innkeeper::torch_layer::compat
