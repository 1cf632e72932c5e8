// Bringing operands together and pinning them.
#include "base/test_point.h"
#include "residency/engine.h"
#include "residency/thread_state.h"

namespace innkeeper {

Status Engine::acquire(NodeId id, std::span<Access> accesses) {
  const uint64_t now = now_.load(std::memory_order_relaxed);
  bool complete = true;
  for (Access& access : accesses) {
    Replica& replica = access.block->replica(id);
    access.pinned = replica.word.try_pin(access.write);
    if (access.pinned) {
      replica.last_use.store(now, std::memory_order_relaxed);
    } else {
      complete = false;
    }
  }
  if (complete) [[likely]]
    return {};

  ThreadState& self = thread_state();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    Status failure;
    ++self.acquiring;
    self.refused = false;
    for (Access& access : accesses) {
      if (access.pinned) continue;
      failure = settle(*access.block, id, access.write);
      if (!failure.ok()) break;
      access.pinned = true;
      access.block->replica(id).last_use.store(now, std::memory_order_relaxed);
    }
    --self.acquiring;
    if (failure.ok()) return {};
    // Never wait while holding pins: the one who is waited for may need just these bytes.
    release(id, accesses);
    reach("released");
    const bool may_pass = failure.code() == Code::busy || self.refused ||
                          (failure.code() == Code::out_of_memory && others_run(node(id)));
    if (!may_pass || std::chrono::steady_clock::now() > deadline) return failure;
    MutexLock lock(mutex_);
    // Holding nothing, it makes no room for a kernel that waits: that one need not wait for it.
    wait_for_room(node(id));
  }
}

void Engine::release(NodeId id, std::span<Access> accesses) {
  for (Access& access : accesses) {
    if (!access.pinned) continue;
    access.pinned = false;
    access.block->replica(id).word.remove_pin();
  }
  wake_waiters();
}

Status Engine::settle(Block& block, NodeId id, bool write) {
  Replica& replica = block.replica(id);
  MutexLock lock(mutex_);
  for (;;) {
    if (replica.word.try_pin(write)) return {};
    if (is_moving(block)) return Status(Code::busy, "the block is being moved by another thread");
    const ReplicaState state = replica.word.state();
    if (state == ReplicaState::shared && write && !replica.word.is_closed()) {
      begin_move(block);
      Status claimed = claim(block, id);
      if (claimed.ok()) replica.word.add_pin();
      end_move(block);
      return claimed;
    }
    begin_move(block);
    lock.unlock();
    reach("settle");
    Status status;
    if (state == ReplicaState::absent) {
      status = bring(block, id);
    } else if (state == ReplicaState::arriving) {
      status = finish_arrival(block, id);
    } else {
      status = open_replica(block, id);
    }
    lock.lock();
    end_move(block);
    if (!status.ok()) return status;
  }
}

// I2: before an operator writes, every other valid replica goes. The block is moving; the lock is let go
// meanwhile.
Status Engine::claim(Block& block, NodeId id) {
  std::array<NodeId, kMaxNodes> others;
  size_t count = 0;
  Status failure;
  for (const auto& at : nodes_) {
    Replica& replica = block.replica(at->id);
    if (at->id == id || replica.word.state() == ReplicaState::absent) continue;
    if (replica.escapes != 0) poll_escapes();
    if (!replica.word.close_if_unpinned()) {
      failure = replica.user_pins != 0
                    ? Status(Code::invalid_argument, "a block that is pinned at " + at->device->name() +
                                                         " cannot be written at " + node(id).device->name() +
                                                         "; unpin it first")
                    : Status(Code::busy, "the block is read at " + at->device->name());
      break;
    }
    others[count++] = at->id;
  }
  if (failure.ok()) {
    mutex_.unlock();
    for (size_t i = 0; i < count; ++i) drop_replica(block, others[i]);
    failure = open_replica(block, id);
    mutex_.lock();
    if (failure.ok()) transition(block.replica(id), ReplicaEvent::write);
  } else {
    for (size_t i = 0; i < count; ++i) reopen(block.replica(others[i]));
  }
  return failure;
}

// ---------------------------------------------------------------- pins of users, and escapes

Status Engine::pin(Block& block, NodeId id) {
  Access access{&block, false, false};
  OperatorScope scope(*this, id);
  IK_RETURN_IF_ERROR(acquire(id, std::span(&access, 1)));
  MutexLock lock(mutex_);
  ++block.replica(id).user_pins;
  return {};
}

void Engine::unpin(Block& block) {
  {
    MutexLock lock(mutex_);
    for (const auto& at : nodes_) {
      Replica& replica = block.replica(at->id);
      if (replica.user_pins == 0) continue;
      --replica.user_pins;
      replica.word.remove_pin();
      break;
    }
  }
  wake_waiters();
}

bool Engine::is_pinned(const Block& block) const {
  MutexLock lock(mutex_);
  for (const auto& at : nodes_) {
    if (block.replica(at->id).user_pins != 0) return true;
  }
  return false;
}

void Engine::keep_escaped(NodeId id, Access& access) {
  if (!access.pinned) return;
  access.pinned = false;  // the pin stays, and belongs to the escape now
  MutexLock lock(mutex_);
  Replica& replica = access.block->replica(id);
  if (replica.escapes != 0) {
    replica.word.remove_pin();  // one pin is enough for as long as it lasts
    return;
  }
  ++replica.escapes;
  escaped_.emplace_back(access.block, id);
}

}  // namespace innkeeper
