#include "residency/requests.h"

#include <algorithm>
#include <optional>

#include "base/heap_reserve.h"
#include "residency/block/sources.h"
#include "residency/movement/moving_scopes.h"

namespace innkeeper {

Status Requests::pin(Block& block, NodeId id) {
  recomputer_.recompute_while_possible();
  Access access{.block = &block};
  std::optional<NodeAdmission> admission;
  IK_RETURN_IF_ERROR(recomputer_.gather(id, std::span(&access, 1), block.size(), admission));
  const NeedsHeap books;
  TableLock lock(table_);
  table_.leave_nursery(block);
  pins_.pin(block, id);
  return {};
}

Status Requests::hold(Block& block, NodeId id, bool write) {
  Access access{.block = &block, .write = write};
  std::optional<NodeAdmission> admission;
  IK_RETURN_IF_ERROR(recomputer_.gather(id, std::span(&access, 1), block.size(), admission));
  const NeedsHeap books;
  TableLock lock(table_);
  table_.leave_nursery(block);
  pins_.hold(block, id, write);
  return {};
}

Status Requests::prefetch(Block& block, NodeId id) {
  if (block.size() == Bytes(0)) return {};
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  TableLock lock(table_);
  for (;;) {
    table_.wait_move(block);
    if (block.replica(id).word.state() != ReplicaState::absent) return {};
    if (source_of(table_, block, id) == kNoNode) return lost_with(table_, block);
    Status status;
    {
      const BlockMovingScope move(table_, block);
      status = mover_.fetch(block, id, kHint);
    }
    if (status.code() != Code::busy || std::chrono::steady_clock::now() > deadline) return status;
    table_.wait_change();
  }
}

Status Requests::write_back(Block& block) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  TableLock lock(table_);
  for (;;) {
    table_.wait_move(block);
    const auto owner = std::find_if(table_.nodes().begin(), table_.nodes().end(), [&](const auto& at) {
      return at->kind == NodeKind::accelerator && block.replica(at->id).word.state() == ReplicaState::owned;
    });
    if (owner == table_.nodes().end()) return {};
    Status status;
    {
      const BlockMovingScope move(table_, block);
      status = mover_.start_move(block, (*owner)->id, table_.backing(**owner), kHint, /*leaves=*/false);
    }
    if (status.code() != Code::busy || std::chrono::steady_clock::now() > deadline) return status;
    table_.wait_change();
  }
}

Status Requests::evict(Block& block) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  TableLock lock(table_);
  bool left = false;
  for (const NodeKind kind : {NodeKind::accelerator, NodeKind::host}) {
    if (kind == NodeKind::host && (left || table_.disk() == kNoNode)) break;
    for (const auto& at : table_.nodes()) {
      if (at->kind != kind) continue;
      table_.wait_move(block);
      Replica& replica = block.replica(at->id);
      if (replica.word.state() == ReplicaState::absent) continue;
      if (replica.escapes != 0) pins_.poll_escapes();
      if (!replica.word.close_if_unpinned()) {
        return pins_.why_pinned(block, *at, "");
      }
      Status status;
      {
        const BlockMovingScope move(table_, block);
        status = evictor_.evict(*at, block, false, Reserve::may_wait);
      }
      if (status.ok() && replica.vacating)
        status = mover_.wait_landed(block.replica(table_.disk()).copies.shared_move());
      IK_RETURN_IF_ERROR(status);
      left = true;
    }
  }
  return {};
}

Status Requests::read(Block& block, void* to) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  TableLock lock(table_);
  table_.leave_nursery(block);
  table_.wait_move(block);
  const NodeId from =
      table_.has_replica(block, table_.host()) ? table_.host() : source_of(table_, block, table_.host());
  if (from == kNoNode) {
    const Status lost = lost_with(table_, block);
    return lost.ok() ? Status(Code::unavailable, "the block has no bytes") : lost;
  }
  const BlockMovingScope move(table_, block);
  Device& origin = table_.device(from);
  if (origin.kind() == NodeKind::accelerator) {
    IK_RETURN_IF_ERROR(mover_.transfers().order_after_writes(origin, Queue::copy_out, block, from));
  } else if (const Event into = block.replica(from).copies.into(); into != nullptr) {
    IK_RETURN_IF_ERROR(into->synchronize());
  }
  const Result<Event> copied = origin.copy_out(to, block.replica(from).memory.data(), block.size());
  if (!copied.ok()) return copied.status();
  return copied.value() == nullptr ? Status() : copied.value()->synchronize();
}

std::vector<NodeId> Requests::where(const Block& block) const {
  TableLock lock(table_);
  std::vector<NodeId> found;
  for (const auto& at : table_.nodes()) {
    const Replica& replica = block.replica(at->id);
    const ReplicaState state = replica.word.state();
    const Move* const move = block.is_moving() ? nullptr : replica.copies.move();
    const bool has_come =
        move != nullptr && !move->is_over() && mover_.is_all_issued(*move) && is_done(move->last);
    if (!is_valid(state) && !has_come) continue;
    found.insert(state == ReplicaState::owned ? found.begin() : found.end(), at->id);
  }
  return found;
}

}  // namespace innkeeper
