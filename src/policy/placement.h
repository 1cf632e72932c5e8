// Chooses the node on which an operator runs: a pure function over plain views.
#pragma once

#include <span>

#include "base/types.h"

namespace innkeeper {

struct NodeView {
  NodeId node = kNoNode;
  Bytes operand_bytes{0};  // Bytes of this operator's operands that are here or arriving, and that count.
  Bytes free{0};           // Budget that is not in use.
  Bytes budget{0};
  bool required = false;  // True: the user has pinned an operand here.
};

// Returns the node that holds most bytes of the operands; `home` on a tie or if no node holds any. A node
// whose budget is smaller than the operands is excluded while another one is large enough. kNoNode if
// `nodes` is empty.
NodeId choose_node(std::span<const NodeView> nodes, Bytes operands, NodeId home);

}  // namespace innkeeper
