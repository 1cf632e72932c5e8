// An operator's turn at a node.
#pragma once

#include <optional>
#include <span>

#include "residency/engine.h"

namespace innkeeper {

// Marks that an operator runs at `node` on this thread. Where room is short only one operator at a time runs
// at a node, so that two never wait for each other's operands or results: a kernel cannot give up what it
// holds (I9). That is a turn, not a lock: a scope may nest at its node. A scope at one node must not open
// inside one at another.
class OperatorScope {
 public:
  // `operands`: bytes of the operator's operands.
  OperatorScope(Engine& engine, NodeId node, Bytes operands);
  ~OperatorScope();
  OperatorScope(const OperatorScope&) = delete;
  OperatorScope& operator=(const OperatorScope&) = delete;

 private:
  Engine& engine_;
  Node& node_;
  int& nested_;  // Scopes of this thread at the node.
  bool has_turn_ = false;
};

// Engine::acquire() in a scope, after what was dropped of the operands has been computed again. `operands`:
// their bytes.
Status gather(Engine& engine, NodeId node, std::span<Access> accesses, Bytes operands,
              std::optional<OperatorScope>& scope);

}  // namespace innkeeper
