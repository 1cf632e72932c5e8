// Where an operator runs that its node cannot run: too large for it, or without a kernel there.
//
// With soft placement (the default) the host runs it, and a warning names the operator, once. Without, it
// fails with what stood in the way.
//
// Thread safety: all functions.
#pragma once

#include <string_view>

#include "base/types.h"

namespace innkeeper::torch_layer {

class Runtime;

// The setting: what was set last, else INNKEEPER_SOFT_PLACEMENT, else on.
bool is_soft();
void set_soft(bool soft);
// Throws where the variable says neither on nor off.
void check_soft_setting();

// The host, if it may run what `node` cannot; else `node`.
NodeId instead_of(Runtime& runtime, NodeId node);

// Says, once for each operator, that the host runs it and why, and which setting makes it an error.
void warn_of_host(std::string_view op, std::string_view why);

// While it lives the calling thread's operators run at a node and nowhere else: on the host, for one whose
// results were too large for the node that was chosen first; where it ran before, for one that is run again.
class OnNode {
 public:
  explicit OnNode(NodeId node);
  ~OnNode();
  OnNode(const OnNode&) = delete;
  OnNode& operator=(const OnNode&) = delete;
  static NodeId wanted();  // kNoNode: whichever is best

 private:
  const NodeId outer_;
};

}  // namespace innkeeper::torch_layer
