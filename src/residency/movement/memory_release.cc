#include "residency/movement/memory_release.h"

#include <algorithm>
#include <utility>

#include "base/test_point.h"

namespace innkeeper {

// The replica is absent from now on, whatever was on its way into it or was to follow.
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

// Gives an accelerator's memory back with its users (I5, I6), so that only who is given it waits for them,
// and no longer than needed. What just dies goes in the order of the compute queue.
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

// Gives memory back as soon as no copy touches it (I5, I6). Host memory is parked until the copies are done.
// Each time that some is, a few of those parked before are looked at, so that they never pile up.
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

// Gives up a replica whose bytes are valid elsewhere, or that is arriving. The caller closed it (no pins).
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

// Takes parked memory whose last copy is done, of at most so many entries, the first that were parked; those
// that a copy still touches go to the back. The caller gives it back without the lock.
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

// Gives back all host memory whose last copy is done. Returns whether there was any.
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

// Waits for the copies that still touch the memory that left first, if any did.
bool MemoryRelease::wait_parked(Node& node) {
  if (node.parked.empty()) return false;
  const std::vector<Event> pending = node.parked.front().users;
  const Unlocked gap(table_);
  for (const Event& event : pending) (void)event->synchronize();
  return true;
}

// ---------------------------------------------------------------- moves that end with a replica

// The move into a replica is over: it is valid now, or gives up its place.
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

// A replica that was to leave once a move has landed: that move is over, or the replica goes another way.
void MemoryRelease::cancel_vacate(Block& block, NodeId id) {
  Replica& source = block.replica(id);
  if (!source.vacating) return;
  source.vacating = false;
  table_.node(id).vacating -= source.memory.size();
}

}  // namespace innkeeper
