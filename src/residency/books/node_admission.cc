#include "residency/books/node_admission.h"

namespace innkeeper {

namespace {

// An operator is large if its operands take more than 1/4 of the budget: with their results and scratch
// memory two such operators may not fit at the same time.
constexpr int64_t kLargeOperator = 4;

}  // namespace

NodeAdmission::NodeAdmission(BlockTable& table, NodeId id, Bytes operands)
    : table_(table), node_(table.node(id)), nested_(thread_state().running[index_of(id)]) {
  if (kLargeOperator * operands.count() > node_.budget.load(std::memory_order_relaxed) &&
      !node_.tight.load(std::memory_order_relaxed)) {
    node_.tight.store(true, std::memory_order_seq_cst);
  }
  node_.running.fetch_add(1, std::memory_order_seq_cst);
  // Read after the count was raised: a thread that becomes exclusive either is seen here or sees this
  // operator.
  if (nested_ == 0 && node_.tight.load(std::memory_order_seq_cst)) {
    node_.running.fetch_sub(1, std::memory_order_seq_cst);
    TableLock lock(table_);
    // Operators that started before the node was tight must end, too.
    while (node_.exclusive || node_.running.load(std::memory_order_seq_cst) != 0) table_.wait_change();
    node_.exclusive = true;
    node_.running.fetch_add(1, std::memory_order_relaxed);
    exclusive_ = true;
  }
  ++nested_;
}

NodeAdmission::~NodeAdmission() {
  --nested_;
  node_.running.fetch_sub(1, std::memory_order_seq_cst);
  if (!exclusive_) {
    table_.wake_waiters();
    return;
  }
  TableLock lock(table_);
  node_.exclusive = false;
  table_.notify();
}

}  // namespace innkeeper
