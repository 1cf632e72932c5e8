// What is asked of one block from outside: by the user, and by tools.
#include <algorithm>

#include "base/heap_reserve.h"
#include "residency/engine.h"
#include "residency/moving.h"

namespace innkeeper {

Status Engine::prefetch(Block& block, NodeId id) {
  if (block.size() == Bytes(0)) return {};
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mutex_);
  for (;;) {
    wait_move(block);
    if (block.replica(id).word.state() != ReplicaState::absent) return {};
    if (source_of(block, id) == kNoNode) return lost_with(block);
    Status status;
    {
      const MoveScope move(*this, block);
      status = fetch(block, id, kHint);
    }
    if (status.code() != Code::busy || std::chrono::steady_clock::now() > deadline) return status;
    wait_change();
  }
}

Status Engine::write_back(Block& block) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mutex_);
  for (;;) {
    wait_move(block);
    const auto owner = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& at) {
      return at->kind == NodeKind::accelerator && block.replica(at->id).word.state() == ReplicaState::owned;
    });
    if (owner == nodes_.end()) return {};
    Status status;
    {
      const MoveScope move(*this, block);
      status = start_move(block, (*owner)->id, backing(**owner), kHint, /*leaves=*/false);
    }
    if (status.code() != Code::busy || std::chrono::steady_clock::now() > deadline) return status;
    wait_change();
  }
}

Status Engine::evict(Block& block) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  MutexLock lock(mutex_);
  bool left = false;
  for (const NodeKind kind : {NodeKind::accelerator, NodeKind::host}) {
    if (kind == NodeKind::host && (left || disk_ == kNoNode)) break;
    for (const auto& at : nodes_) {
      if (at->kind != kind) continue;
      wait_move(block);
      Replica& replica = block.replica(at->id);
      if (replica.word.state() == ReplicaState::absent) continue;
      if (replica.escapes != 0) poll_escapes();
      if (!replica.word.close_if_unpinned()) {
        return pinned(block, *at, "");
      }
      Status status;
      {
        const MoveScope move(*this, block);
        status = leave(*at, block, false, Reserve::may_wait);
      }
      if (status.ok() && replica.vacating) status = wait_landed(block.replica(disk_).copies.shared_move());
      IK_RETURN_IF_ERROR(status);
      left = true;
    }
  }
  return {};
}

Status Engine::read(Block& block, void* to) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  MutexLock lock(mutex_);
  leave_nursery(block);
  wait_move(block);
  const NodeId from = has_replica(block, host_) ? host_ : source_of(block, host_);
  if (from == kNoNode) {
    const Status lost = lost_with(block);
    return lost.ok() ? Status(Code::unavailable, "the block has no bytes") : lost;
  }
  const MoveScope move(*this, block);
  Device& origin = device(from);
  if (origin.kind() == NodeKind::accelerator) {
    IK_RETURN_IF_ERROR(order_copy(origin, Queue::copy_out, block, from));
  } else if (const Event into = block.replica(from).copies.into(); into != nullptr) {
    IK_RETURN_IF_ERROR(into->synchronize());
  }
  const Result<Event> copied = origin.copy_out(to, block.replica(from).memory.data(), block.size());
  if (!copied.ok()) return copied.status();
  return copied.value() == nullptr ? Status() : copied.value()->synchronize();
}

std::vector<NodeId> Engine::where(const Block& block) const {
  MutexLock lock(mutex_);
  std::vector<NodeId> found;
  for (const auto& at : nodes_) {
    const Replica& replica = block.replica(at->id);
    const ReplicaState state = replica.word.state();
    const Move* const move = is_moving(block) ? nullptr : replica.copies.move();
    const bool has_come = move != nullptr && !move->is_over() && is_all_issued(*move) && is_done(move->last);
    if (!is_valid(state) && !has_come) continue;
    found.insert(state == ReplicaState::owned ? found.begin() : found.end(), at->id);
  }
  return found;
}

}  // namespace innkeeper
