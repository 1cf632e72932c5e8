#include "residency/books/ledger.h"

#include <string>
#include <utility>

namespace innkeeper {

bool Ledger::try_charge(Node& node, Bytes size) {
  int64_t used = node.used.load(std::memory_order_relaxed);
  do {
    if (size.count() > node.budget.load(std::memory_order_relaxed) - used) return false;
  } while (!node.used.compare_exchange_weak(used, used + size.count(), std::memory_order_acq_rel));
  const int64_t now = used + size.count();
  // Well before memory runs out: two kernels that wait for each other's memory look like one that is too
  // large, and an operator that has started is not stopped.
  if (2 * now > node.budget.load(std::memory_order_relaxed) && !node.tight.load(std::memory_order_relaxed)) {
    node.tight.store(true, std::memory_order_seq_cst);
  }
  int64_t peak = node.peak.load(std::memory_order_relaxed);
  while (peak < now && !node.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  return true;
}

Bytes Ledger::pinned_bytes(const Node& node) const {
  Bytes pinned{0};
  for (Block* block = node.first; block != nullptr; block = block->replica(node.id).next) {
    const Replica& replica = block->replica(node.id);
    if (replica.user_pins != 0 || replica.escapes != 0) pinned += replica.memory.size();
  }
  return pinned;
}

Bytes Ledger::unpinned_budget(NodeId id) const {
  TableLock lock(table_);
  return budget(id) - pinned_bytes(table_.node(id));
}

bool Ledger::others_run(const Node& node) {
  const ThreadState& self = thread_state();
  return node.running.load(std::memory_order_acquire) > self.running[index_of(node.id)];
}

bool Ledger::all_wait(const Node& node) const {
  const int running = thread_state().running[index_of(node.id)];
  return node.stuck + running >= node.running.load(std::memory_order_acquire);
}

void Ledger::wait_for_memory(Node& node) {
  const ThreadState& self = thread_state();
  const int running = self.running[index_of(node.id)];
  const int moving = self.moving[index_of(node.id)];
  struct Waits {  // Ends with the lock held, after an exception too.
    Waits(Node& at, int its_running, int its_moving) : node(at), running(its_running), moving(its_moving) {
      node.stuck += running;
      node.moving -= moving;
    }
    ~Waits() {
      node.stuck -= running;
      node.moving += moving;
    }
    Node& node;
    const int running, moving;
  } const waits(node, running, moving);
  table_.wait_change();
}

Status Ledger::out_of_memory(const Node& node, Bytes size) const {
  Bytes in_use{0};
  for (Block* block = node.first; block != nullptr; block = block->replica(node.id).next) {
    if (block->replica(node.id).word.pins() != 0) in_use += block->replica(node.id).memory.size();
  }
  const Bytes used(node.used.load());
  const Bytes kernel = used - node.replica_bytes;
  const Bytes may_leave = node.replica_bytes - in_use;
  std::string message = node.device->name() + " is out of memory. " + to_string(size) + " asked, " +
                        to_string(used) + " of its budget of " + to_string(Bytes(node.budget.load())) +
                        " in use (" + to_string(in_use) + " by operands and pins, of which " +
                        to_string(pinned_bytes(node)) + " pinned by the user or escaped; " +
                        to_string(may_leave) + " by other tensors; " + to_string(kernel) +
                        " by kernels themselves)";
  const Bytes free(node.budget.load() - used.count());
  if (table_.backing(node) == kNoNode && node.kind != NodeKind::disk && may_leave != Bytes(0) &&
      free + may_leave >= size) {
    message += "; nothing below " + node.device->name() +
               " can take what is here: add a disk node to INNKEEPER_NODES";
  }
  message += "; a larger budget for " + node.device->name() + " in INNKEEPER_NODES or configure() would help";
  if (pinned_bytes(node) != Bytes(0)) message += ", and unpinning";
  return Status(Code::out_of_memory, std::move(message));
}

}  // namespace innkeeper
