// Which node an operator runs on: a pure function over plain views.
#pragma once

#include <span>

#include "base/types.h"

namespace innkeeper {

struct NodeView {
  NodeId node = kNoNode;
  Bytes operand_bytes{0};  // of this operator's operands, bytes that are here or coming, and count
  Bytes free{0};           // budget not in use
  Bytes budget{0};
  bool required = false;  // an operand is pinned here by the user
};

// The node that holds most bytes of the operands; `home` on a tie or where nothing is anywhere. A node whose
// budget is smaller than the operands is left out while another has room. kNoNode if `nodes` is empty.
NodeId choose_node(std::span<const NodeView> nodes, Bytes operands, NodeId home);

}  // namespace innkeeper
