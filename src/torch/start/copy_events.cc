#include "torch/start/copy_events.h"

#include <ATen/record_function.h>

#include <array>
#include <string>

#include "residency/block/observers.h"

namespace innkeeper::torch_layer {
namespace {

const char* name_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::fetch: return "innkeeper::fetch";
    case CopyKind::write_back: return "innkeeper::write_back";
    case CopyKind::between: return "innkeeper::between";
  }
  return "innkeeper::copy";
}

}  // namespace

void record_copy(const Device& from, const Device& to, Bytes size, const std::function<void()>& copy) {
  at::RecordFunction event(at::RecordScope::FUNCTION);
  if (event.isActive()) [[unlikely]] {
    const std::array inputs = {c10::IValue(size.count())};
    event.before(
        std::string(name_of(copy_kind(from.kind(), to.kind()))) + " " + from.name() + " to " + to.name(),
        c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  }
  copy();
}

}  // namespace innkeeper::torch_layer
