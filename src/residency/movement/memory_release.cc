#include "residency/movement/memory_release.h"

#include <algorithm>
#include <utility>

#include "base/test_point.h"

namespace innkeeper {

Released MemoryRelease::detach(Block& block, NodeId id, ReplicaEvent event) {
  Replica& replica = block.replica(id);
  table_.unlist(block, id);
  cancel_vacate(block, id);
  finish_move(block, id);
  replica.transition(event);
  return {id, std::move(replica.memory), replica.copies.take(),
          replica.last_use.load(std::memory_order_relaxed)};
}

Released MemoryRelease::begin(Block& block, NodeId id, ReplicaEvent event) {
  announce(table_.node(id));
  return detach(block, id, event);
}

// The memory carries its users, so that only its next owner waits for them, and no longer than needed (I5,
// I6). The memory of a block that ends follows the order of the compute queue instead: that costs no event.
void MemoryRelease::free_accelerator_memory(Node& node, Released released, bool soon) {
  Device& device = *node.device;
  if (soon || !released.users.empty()) {
    Result<Event> last = node.stamps->after(released.last_use);
    if (last.ok()) {
      released.users.push_back(std::move(last).value());
      return device.give_back(std::move(released.memory), released.users);
    }
    device.order_after(released.users);
  }
  released.memory.reset();
}

void MemoryRelease::finish(Released released, bool soon) {
  Node& at = table_.node(released.node);
  if (at.kind == NodeKind::accelerator) {
    if (released.memory) free_accelerator_memory(at, std::move(released), soon);
  } else {
    std::erase_if(released.users, [](const Event& event) { return is_done(event); });
    if (released.memory && !released.users.empty()) {
      std::vector<Memory> reclaimed;
      TableLock lock(table_);
      at.parked.push_back({std::move(released.memory), std::move(released.users)});
      reclaimed = reap(at, kReapedAtOnce);
      lock.unlock();
    } else {
      released.memory.reset();
    }
  }
  at.moving.fetch_sub(1, std::memory_order_acq_rel);
  table_.wake_waiters();
}

void MemoryRelease::drop_replica(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  table_.observe(block, id, nullptr);
  Released dropped;
  {
    TableLock lock(table_);
    const bool arriving = replica.word.state() == ReplicaState::arriving;
    dropped = begin(block, id, arriving ? ReplicaEvent::fetch_fail : ReplicaEvent::drop);
    replica.word.open();
  }
  reach("dropped");
  finish(std::move(dropped), /*soon=*/true);
}

// ---------------------------------------------------------------- parked memory

// Takes parked memory whose last copy is done, out of the first `entries` pieces; the others go to the back.
// The caller frees the memory without the lock.
std::vector<Memory> MemoryRelease::reap(Node& node, size_t entries) {
  std::vector<Memory> done;
  for (size_t looks = std::min(entries, node.parked.size()); looks > 0; --looks) {
    ParkedMemory entry = std::move(node.parked.front());
    node.parked.pop_front();
    std::erase_if(entry.users, [](const Event& event) { return is_done(event); });
    if (entry.users.empty()) {
      done.push_back(std::move(entry.memory));
    } else {
      node.parked.push_back(std::move(entry));
    }
  }
  return done;
}

bool MemoryRelease::reclaim(Node& node) {
  std::vector<Memory> done = reap(node, SIZE_MAX);
  if (done.empty()) return false;
  announce(node);
  {
    const Unlocked gap(table_);
    done.clear();
  }
  node.moving.fetch_sub(1, std::memory_order_acq_rel);
  table_.notify();
  return true;
}

bool MemoryRelease::wait_parked(Node& node) {
  if (node.parked.empty()) return false;
  const std::vector<Event> pending = node.parked.front().users;
  const Unlocked gap(table_);
  for (const Event& event : pending) (void)event->synchronize();
  return true;
}

// ---------------------------------------------------------------- moves that end with a replica

void MemoryRelease::finish_move(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  const MovePtr move = replica.copies.shared_move();
  if (move == nullptr) return;
  if (move->leaves && move->to == table_.disk() && !move->landing) cancel_vacate(block, move->from);
  move->reservation.give_back();
  if (!move->status.ok()) {
    move->become(MoveState::failed);
  } else {
    move->become(move->state() == MoveState::copying ? MoveState::landed : MoveState::cancelled);
  }
  replica.copies.clear_move();
}

void MemoryRelease::cancel_vacate(Block& block, NodeId id) {
  Replica& source = block.replica(id);
  if (!source.vacating) return;
  source.vacating = false;
  table_.node(id).vacating -= source.memory.size();
}

}  // namespace innkeeper
