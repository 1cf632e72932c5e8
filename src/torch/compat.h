// Differences between the supported versions of PyTorch (2.11 to the newest), in one place. All other code in
// src/torch uses only features that these versions share.
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
// In versions with named dimensions, the lists for autocast use this name without its namespace.
using at::DimnameList;
}  // namespace innkeeper::torch_layer
#endif

namespace innkeeper::torch_layer::compat {

// Kind of the thread context among the data that PyTorch carries with a thread's work to other threads.
#if INNKEEPER_TORCH_AT_LEAST(2, 13)
inline constexpr std::string_view kContextName = "INNKEEPER_THREAD_CONTEXT";
inline constexpr c10::DebugInfoKind kContextKind(&kContextName);
#else  // An enumeration that has no value for backends; this one is for PyTorch's own tests.
inline constexpr auto kContextKind = c10::DebugInfoKind::TEST_INFO_2;
#endif

// Whether a packed sequence of equally long sequences goes through oneDNN's LSTM on a CPU, as a padded one
// does.
inline constexpr bool kPadsEquallyLong = INNKEEPER_TORCH_AT_LEAST(2, 13);

// Makes `Hooks` answer for DeviceType::HPU. Requires: called before the first use of the hooks, because
// PyTorch asks the registry only then and keeps the answer.
template <class Hooks>
void register_hpu_hooks() {
  at::HPUHooksRegistry()->Register(
      "HPUHooks",
      [](at::HPUHooksArgs) -> std::unique_ptr<at::HPUHooksInterface> { return std::make_unique<Hooks>(); });
}

}  // namespace innkeeper::torch_layer::compat
