#include "policy/placement.h"

namespace innkeeper {

NodeId choose_node(std::span<const NodeView> nodes, Bytes operands, NodeId home) {
  const NodeView* best = nullptr;
  const auto better = [&](const NodeView& a, const NodeView& b) {
    if (a.required != b.required) return a.required;
    const bool a_fits = a.budget >= operands;
    const bool b_fits = b.budget >= operands;
    if (a_fits != b_fits) return a_fits;
    if (a.operand_bytes != b.operand_bytes) return a.operand_bytes > b.operand_bytes;
    if ((a.node == home) != (b.node == home)) return a.node == home;
    return a.free > b.free;
  };
  for (const NodeView& candidate : nodes) {
    if (best == nullptr || better(candidate, *best)) best = &candidate;
  }
  return best == nullptr ? kNoNode : best->node;
}

}  // namespace innkeeper
