#include "torch/accelerator/backend.h"

#include <array>

#include "base/check.h"
#include "torch/process/nodes_setting.h"

namespace innkeeper::torch_layer {
namespace {

constexpr size_t kMost = 8;

// Written while the library is loaded, before other threads use it.
std::array<Backend*, kMost> added{};
size_t count = 0;

template <class Is>
Backend* first(const Is& is) {
  for (Backend* const each : backends())
    if (is(*each)) return each;
  return nullptr;
}

}  // namespace

void add_backend(Backend& backend) {
  IK_CHECK(count < kMost, "too many kinds of accelerators");
  added[count++] = &backend;
  add_kind_of_build(backend.kind());
}

std::span<Backend* const> backends() { return {added.data(), count}; }

bool is_any_captured() {
  return first([](Backend& each) { return each.is_any_captured(); }) != nullptr;
}

Backend* backend_of(c10::DeviceType type) {
  return first([type](const Backend& each) { return each.type() == type; });
}

Backend* backend_of(std::string_view kind) {
  return first([kind](const Backend& each) { return each.kind() == kind; });
}

}  // namespace innkeeper::torch_layer
