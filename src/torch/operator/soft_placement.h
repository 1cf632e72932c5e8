// Placement of an operator that its node cannot run, because its operands are too large or there is no kernel
// for it.
//
// With soft placement (the default) the host runs it, and a warning names the operator once. Without it, the
// operator fails with the reason.
//
// Thread safety: all functions.
#pragma once

#include <string_view>

#include "base/types.h"

namespace innkeeper::torch_layer {

class Runtime;

// The setting: the value set last, else INNKEEPER_SOFT_PLACEMENT, else on.
bool is_soft();
void set_soft(bool soft);
// Throws if the variable says neither on nor off.
void check_soft_setting();

// The host, if it may run an operator that `node` cannot run; else `node`.
NodeId instead_of(Runtime& runtime, NodeId node);

// Warns once for each operator that the host runs it and why, and names the setting that makes it an error.
void warn_of_host(std::string_view op, std::string_view why);

// While it lives, the calling thread's operators run at one node only. That is the host, for an operator
// whose results did not fit the node chosen first; or the node of the first run, for a recorded call.
class OnNode {
 public:
  explicit OnNode(NodeId node);
  ~OnNode();
  OnNode(const OnNode&) = delete;
  OnNode& operator=(const OnNode&) = delete;
  static NodeId wanted();  // kNoNode: choose the best node.

 private:
  const NodeId outer_;
};

}  // namespace innkeeper::torch_layer
