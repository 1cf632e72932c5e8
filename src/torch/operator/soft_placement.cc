#include "torch/operator/soft_placement.h"

#include <c10/util/Exception.h>

#include <string>
#include <unordered_set>

#include "base/thread_annotations.h"
#include "torch/process/runtime_state.h"
#include "torch/process/switch_setting.h"

namespace innkeeper::torch_layer {
namespace {

thread_local NodeId on_node = kNoNode;

SwitchSetting& setting() {
  static SwitchSetting it("INNKEEPER_SOFT_PLACEMENT");
  return it;
}

// Operators that a warning has named.
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
  // If the machine holds no data (simulation without data), the host cannot compute.
  const bool may = is_soft() && on_node == kNoNode && runtime.has_data() && !runtime.backend(node).host;
  return may ? runtime.engine().host() : node;
}

void warn_of_host(std::string_view op, std::string_view why) {
  static auto& named = *new Named;  // Leaked: operators may run while static objects are destroyed.
  if (!named.add(op)) return;
  TORCH_WARN("innkeeper: ", op, " runs on the host: ", why, " (with soft_placement=False this is an error)");
}

OnNode::OnNode(NodeId node) : outer_(on_node) { on_node = node; }
OnNode::~OnNode() { on_node = outer_; }
NodeId OnNode::wanted() { return on_node; }

}  // namespace innkeeper::torch_layer
