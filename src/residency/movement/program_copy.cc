#include "residency/movement/program_copy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/test_point.h"

namespace innkeeper {

ProgramCopy::ProgramCopy(BlockTable& table, NodeId node, const Access& access)
    : table_(table), node_(node), access_(access) {
  IK_CHECK(
      access.pinned && access.queue != Queue::compute && access.write == (access.queue == Queue::copy_in),
      "a program's copy has a pin and a copy queue");
}

Status ProgramCopy::begin() {
  const Replica& replica = access_.block->replica(node_);
  Device& device = table_.device(node_);
  std::vector<Event> before;
  Stamp touched = 0;
  {
    TableLock lock(table_);
    if (access_.block->is_moving()) {  // The thread that moves it changes the events.
      lock.unlock();
      return device.synchronize();
    }
    before.push_back(replica.copies.into());
    if (access_.write) {
      const std::span<const Event> out = replica.copies.out();
      before.insert(before.end(), out.begin(), out.end());
    }
    touched = replica.last_write.load(std::memory_order_relaxed);
    if (access_.write) touched = std::max(touched, replica.last_use.load(std::memory_order_relaxed));
    if (replica.escapes != 0) touched = kAllSoFar;  // Its holder's kernels have no stamp.
  }
  if (touched != 0) {
    Result<Event> passed = table_.node(node_).stamps->after(touched);
    if (!passed.ok()) return passed.status();
    before.push_back(std::move(passed).value());
  }
  for (const Event& event : before) IK_RETURN_IF_ERROR(device.wait(access_.queue, event));
  return {};
}

Status ProgramCopy::end(Event copied) {
  Replica& replica = access_.block->replica(node_);
  reach("program copy");
  TableLock lock(table_);
  table_.leave_nursery(*access_.block);  // A block that ends in the nursery forgets its copies.
  if (access_.block->is_moving()) {
    lock.unlock();
    return table_.device(node_).wait(Queue::compute, copied);  // The pin's stamp covers it.
  }
  if (copied == nullptr) return {};
  if (access_.write) {
    replica.copies.set_into(std::move(copied));
    replica.word.close();
  } else {
    replica.copies.add_out(copied);
    if (replica.word.state() == ReplicaState::owned) replica.word.close();
  }
  return {};
}

}  // namespace innkeeper
