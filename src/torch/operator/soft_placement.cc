#include "torch/operator/soft_placement.h"

#include <c10/util/Exception.h>

#include <string>
#include <unordered_set>

#include "base/thread_annotations.h"
#include "torch/runtime/runtime_state.h"
#include "torch/runtime/switch_setting.h"

namespace innkeeper::torch_layer {
namespace {

thread_local bool on_host = false;

SwitchSetting& setting() {
  static SwitchSetting it("INNKEEPER_SOFT_PLACEMENT");
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

bool is_soft() { return setting().get(); }
void set_soft(bool soft) { setting().set(soft); }
void check_soft_setting() { setting().check(); }

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
