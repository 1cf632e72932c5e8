#include "torch/registry/library_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_annotations.h"

namespace innkeeper::torch_layer {
namespace {

using c10::DispatchKey;

// Whether this PyTorch was built with CUDA. It does not ask the driver, because a program that forks after
// the import must not have started it.
bool built_with_cuda() {
  const auto add = c10::Dispatcher::singleton().findSchema({"aten::add", "Tensor"});
  return add.has_value() && add->hasKernelForDispatchKey(DispatchKey::CUDA);
}

bool chooses_by_device(const c10::OperatorHandle& op) {
  const auto has = [&op](DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  const bool cpu = has(DispatchKey::CPU), cuda = has(DispatchKey::CUDA);
  if (has(DispatchKey::CompositeExplicitAutograd) || has(DispatchKey::CompositeExplicitAutogradNonFunctional))
    return cpu || cuda;
  // The operator's gradient is that of its parts, except on devices with a kernel of their own. So a
  // backend's kernel loses no gradient only if the other devices have a kernel, too.
  return has(DispatchKey::CompositeImplicitAutograd) && cpu && (cuda || !built_with_cuda());
}

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType || type.kind() == c10::TypeKind::AnyType) return true;
  const auto parts = type.containedTypes();
  return std::any_of(parts.begin(), parts.end(),
                     [](const c10::TypePtr& part) { return holds_tensors(*part); });
}

// Whether the boxed kernel finds all tensors in the arguments. It does not find those in lists of lists, in
// dictionaries, or in an argument of any type.
bool lends_all(const Signature& signature) {
  const auto& arguments = signature.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (signature.args[i].kind == Parameter::Kind::other && holds_tensors(*arguments[i].type())) return false;
  }
  return signature.tensor_args;
}

struct KeyKernel {
  DispatchKey key;
  c10::KernelFunction kernel;
  const char* what;
};

// Whether operators were defined since the last look.
std::atomic<bool> g_newcomers{false};

struct Registered {
  Mutex mutex;
  std::optional<c10::RegistrationHandleRAII> listener IK_GUARDED_BY(mutex);
  std::vector<KeyKernel> kernels IK_GUARDED_BY(mutex);
  std::vector<c10::RegistrationHandleRAII> handles IK_GUARDED_BY(mutex);

  void look_at(const c10::OperatorName& name) IK_REQUIRES(mutex) {
    if (name.name.starts_with("aten::")) return;  // PyTorch's own operators have their kernels.
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || !chooses_by_device(*op)) return;
    const std::unique_ptr<const Signature> signature(read_signature(*op));
    if (!lends_all(*signature)) return;
    for (const KeyKernel& each : kernels) {
      if (op->hasKernelForDispatchKey(each.key)) continue;
      handles.push_back(
          dispatcher.registerImpl(name, each.key, each.kernel, std::nullopt, nullptr, each.what));
    }
  }

  void listen() IK_REQUIRES(mutex);

  void look_at_all() IK_REQUIRES(mutex) {
    g_newcomers = false;  // Reset first: the next look covers an operator that is defined meanwhile.
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) look_at(name);
  }
};

// PyTorch calls the listener under the dispatcher's lock, so the listener looks nothing up.
class Listener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override { g_newcomers = true; }
  void onOperatorDeregistered(const c10::OperatorHandle& /*op*/) override {}
};

void Registered::listen() {
  if (listener.has_value()) return;
  listener.emplace(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>()));
}

// Never destroyed: managed tensors may outlive every other object.
Registered& registered() {
  static auto& all = *new Registered;
  return all;
}

}  // namespace

void register_for_libraries(DispatchKey key, const c10::KernelFunction& kernel, const char* what) {
  Registered& all = registered();
  const MutexLock lock(all.mutex);
  all.kernels.push_back({key, kernel, what});
  all.listen();
  all.look_at_all();
}

void look_again() {
  Registered& all = registered();
  const MutexLock lock(all.mutex);
  all.look_at_all();
}

void look_at_new() {
  if (g_newcomers) look_again();
}

void look_again(const std::string& name, const std::string& overload) {
  Registered& all = registered();
  const MutexLock lock(all.mutex);
  all.look_at({name, overload});
}

}  // namespace innkeeper::torch_layer
