#include "torch/accelerator/backend.h"

#include <array>

#include "base/check.h"

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
}

std::span<Backend* const> backends() { return {added.data(), count}; }

bool is_any_captured() {
  return first([](Backend& each) { return each.is_any_captured(); }) != nullptr;
}

Backend* backend_of(c10::DeviceType type) {
  return first([type](const Backend& each) { return each.type() == type; });
}

Backend* backend_of(NodeMake make) {
  return first([make](const Backend& each) { return each.make() == make; });
}

}  // namespace innkeeper::torch_layer
