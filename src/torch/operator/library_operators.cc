#include "torch/operator/library_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/thread_annotations.h"
#include "torch/operator/register_ops.h"

namespace innkeeper::torch_layer {
namespace {

using c10::DispatchKey;

bool chooses_by_device(const c10::OperatorHandle& op) {
  const auto has = [&op](DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  return (has(DispatchKey::CPU) || has(DispatchKey::CUDA)) &&
         (has(DispatchKey::CompositeExplicitAutograd) ||
          has(DispatchKey::CompositeExplicitAutogradNonFunctional));
}

struct Backend {
  DispatchKey key;
  c10::KernelFunction kernel;
  const char* what;
};

struct Registered {
  Mutex mutex;
  std::vector<Backend> backends IK_GUARDED_BY(mutex);
  std::vector<c10::RegistrationHandleRAII> handles IK_GUARDED_BY(mutex);

  bool look_at(const c10::OperatorName& name) IK_REQUIRES(mutex) {
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || !chooses_by_device(*op)) return false;
    const std::unique_ptr<const Signature> signature(read_signature(*op));
    if (needs_own_kernel(*signature)) return false;
    for (const Backend& backend : backends) {
      if (op->hasKernelForDispatchKey(backend.key)) continue;
      handles.push_back(
          dispatcher.registerImpl(name, backend.key, backend.kernel, std::nullopt, nullptr, backend.what));
    }
    return true;
  }
};

// Never destroyed: managed tensors may outlive everything.
Registered& registered() {
  static auto& all = *new Registered;
  return all;
}

}  // namespace

void register_for_libraries(DispatchKey key, const c10::KernelFunction& kernel, const char* what) {
  Registered& all = registered();
  const MutexLock lock(all.mutex);
  all.backends.push_back({key, kernel, what});
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) all.look_at(name);
  }
}

bool look_again(const std::string& name, const std::string& overload) {
  Registered& all = registered();
  const MutexLock lock(all.mutex);
  return all.look_at({name, overload});
}

}  // namespace innkeeper::torch_layer
