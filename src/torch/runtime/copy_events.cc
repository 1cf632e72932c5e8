#include "torch/runtime/copy_events.h"

#include <ATen/record_function.h>

#include <array>
#include <string>
#include <string_view>

namespace innkeeper::torch_layer {
namespace {

constexpr std::string_view kFetch = "innkeeper::fetch";
constexpr std::string_view kWriteBack = "innkeeper::write_back";
constexpr std::string_view kBetween = "innkeeper::between";

// As stats() counts them.
std::string_view kind_of(NodeKind from, NodeKind to) {
  if (from == NodeKind::accelerator && to == NodeKind::accelerator) return kBetween;
  return from == NodeKind::accelerator || to == NodeKind::disk ? kWriteBack : kFetch;
}

}  // namespace

void record_copy(const Device& from, const Device& to, Bytes size, const std::function<void()>& copy) {
  at::RecordFunction event(at::RecordScope::FUNCTION);
  if (event.isActive()) [[unlikely]] {
    const std::array inputs = {c10::IValue(size.count())};
    event.before(std::string(kind_of(from.kind(), to.kind())) + " " + from.name() + " to " + to.name(),
                 c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
    copy();
    return;
  }
  copy();
}

}  // namespace innkeeper::torch_layer
