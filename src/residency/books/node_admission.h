// The right to run an operator at a node, for a scope.
//
// Where memory is short, one operator at a time runs at a node, so that two never wait for each other's
// operands or results: a kernel cannot give up the memory that it holds (I9). Admissions of one thread nest
// at their node. A thread must not open an admission at one node inside an admission at another.
//
// Blocks: while another operator is admitted to a node that is short of memory.
#pragma once

#include "residency/block/block_table.h"

namespace innkeeper {

class NodeAdmission {
 public:
  // `operands`: bytes of the operator's operands.
  NodeAdmission(BlockTable& table, NodeId node, Bytes operands);
  ~NodeAdmission();
  NodeAdmission(const NodeAdmission&) = delete;
  NodeAdmission& operator=(const NodeAdmission&) = delete;

 private:
  BlockTable& table_;
  Node& node_;
  int& nested_;             // Admissions of this thread at the node.
  bool exclusive_ = false;  // No other thread is admitted meanwhile.
};

}  // namespace innkeeper
