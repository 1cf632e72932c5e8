#include "torch/soft_placement.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <unordered_set>

#include "base/thread_annotations.h"
#include "config/text.h"
#include "torch/errors.h"
#include "torch/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

thread_local bool on_host = false;

Result<bool> from_environment() {
  const char* text = std::getenv("INNKEEPER_SOFT_PLACEMENT");
  return text == nullptr || *text == '\0' ? true : parse_switch("INNKEEPER_SOFT_PLACEMENT", text);
}

std::atomic<bool>& setting() {
  static std::atomic<bool> it{[] {
    const Result<bool> wanted = from_environment();
    return !wanted.ok() || wanted.value();
  }()};
  return it;
}

// The operators that a warning has named.
class Named {
 public:
  bool add(std::string_view op) IK_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return ops_.emplace(op).second;
  }

 private:
  Mutex mutex_;
  std::unordered_set<std::string> ops_ IK_GUARDED_BY(mutex_);
};

}  // namespace

bool is_soft() { return setting().load(std::memory_order_relaxed); }
void set_soft(bool soft) { setting().store(soft, std::memory_order_relaxed); }
void check_soft_setting() { throw_if_error(from_environment().status(), ""); }

NodeId instead_of(Runtime& runtime, NodeId node) {
  // The host computes nothing while it holds no data.
  const bool may = is_soft() && runtime.has_data() && !runtime.backend(node).host;
  return may ? runtime.engine().host() : node;
}

void warn_of_host(std::string_view op, std::string_view why) {
  static auto& named = *new Named;  // leaked: operators may run while static objects are destroyed
  if (!named.add(op)) return;
  TORCH_WARN("innkeeper: ", op, " runs on the host: ", why, " (with soft_placement=False this is an error)");
}

OnHost::OnHost() : outer_(on_host) { on_host = true; }
OnHost::~OnHost() { on_host = outer_; }
bool OnHost::wanted() { return on_host; }

}  // namespace innkeeper::torch_layer
