#include "torch/process/thread_context.h"

#include <memory>

#include "torch/compat.h"

namespace innkeeper::torch_layer {
namespace {

using compat::kContextKind;

const std::shared_ptr<ThreadContext>& own() {
  static thread_local const auto context = std::make_shared<ThreadContext>();
  return context;
}

}  // namespace

ThreadContext& own_context() { return *own(); }

const ThreadContext* callers_context() {
  const c10::DebugInfoBase* info = c10::ThreadLocalDebugInfo::get(kContextKind);
  if (info == nullptr || info == own().get()) return nullptr;
  return dynamic_cast<const ThreadContext*>(info);
}

bool publish_context() {
  if (c10::ThreadLocalDebugInfo::get(kContextKind) != nullptr) return true;
  if (c10::ThreadLocalDebugInfo::current() != nullptr) return false;
  c10::ThreadLocalDebugInfo::_push(kContextKind, own());
  return true;
}

}  // namespace innkeeper::torch_layer
