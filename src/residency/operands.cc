#include "residency/operands.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/heap_reserve.h"
#include "base/test_point.h"
#include "residency/block/sources.h"
#include "residency/movement/moving_scopes.h"

namespace innkeeper {

// ---------------------------------------------------------------- pins

Status Operands::acquire(NodeId id, std::span<Access> accesses) {
  if (table_.device(id).is_lost()) [[unlikely]] {
    for (const Access& access : accesses) IK_RETURN_IF_ERROR(check_not_lost(table_, *access.block));
    return table_.device(id).loss();
  }
  bool complete = true;
  for (Access& access : accesses) {
    access.pinned = access.block->replica(id).word.try_pin(access.write);
    complete = complete && access.pinned;
  }
  if (complete) [[likely]]
    return {};

  if (table_.disk() != kNoNode) {
    for (const Access& access : accesses) {
      if (!access.pinned && access.block->replica(table_.disk()).word.state() != ReplicaState::absent)
        mover_.start_disk_read(*access.block, id);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    Status failure;
    for (Access& access : accesses) {
      if (access.pinned) continue;
      failure = pin_slow(access, id);
      if (!failure.ok()) break;
      access.pinned = true;
    }
    if (failure.ok()) return {};
    // Never wait while holding pins: the thread that this one waits for may need just these bytes.
    release_pins(id, accesses);
    reach("released");
    const bool may_pass = failure.code() == Code::busy ||
                          (failure.code() == Code::out_of_memory && ledger_.others_run(table_.node(id)));
    if (!may_pass || std::chrono::steady_clock::now() > deadline) return failure;
    TableLock lock(table_);
    // This operator holds nothing now, so a kernel that waits for memory must not wait for it.
    ledger_.wait_for_memory(table_.node(id));
  }
}

// The operator's kernels are on the compute queue, so its stamp covers them. The stamp is set before the pin
// goes, for the next thread that moves the block.
void Operands::release_pins(NodeId id, std::span<Access> accesses) {
  const Stamp stamp = table_.next_stamp();
  Bytes written{0};
  for (Access& access : accesses) {
    if (!access.pinned) continue;
    access.pinned = false;
    Replica& replica = access.block->replica(id);
    replica.last_use.store(stamp, std::memory_order_relaxed);
    if (access.write || access.born) replica.last_write.store(stamp, std::memory_order_relaxed);
    if (access.write) {
      written += access.block->size();
      access.block->count_write();
    }
    replica.word.remove_pin(access.write);
  }
  if (Stamps* const stamps = table_.node(id).stamps.get()) stamps->launched(written);
  table_.wake_waiters();
}

Status Operands::pin_slow(const Access& access, NodeId id) {
  Block& block = *access.block;
  const bool write = access.write;
  Replica& replica = block.replica(id);
  TableLock lock(table_);
  for (;;) {
    if (replica.word.try_pin(write)) return {};
    if (block.is_moving()) return Status(Code::busy, "the block is being moved by another thread");
    if (pin_closed(replica, access)) return {};
    const ReplicaState state = replica.word.state();
    if (state == ReplicaState::shared && write && !replica.word.is_closed()) {
      IK_RETURN_IF_ERROR(make_exclusive(block, id));
      replica.word.add_pin(write);
      return {};
    }
    Status status;
    {
      const BlockMovingScope move(table_, block);
      reach("settle");
      if (state == ReplicaState::absent) {
        MoveIntent intent = kDemand;
        intent.first = access.queue;
        status = mover_.fetch(block, id, intent);
      } else if (state == ReplicaState::arriving) {
        status = mover_.finish_arrival(block, id);
      } else {
        status = mover_.open_replica(block, id);
      }
    }
    if (!status.ok()) return status;
  }
}

// Pins a valid replica that copies under way have closed, for work that need not follow these copies: a
// reader need not wait for copies out of the replica, and the queue of a ProgramCopy waits for all of them by
// itself.
bool Operands::pin_closed(Replica& replica, const Access& access) {
  const ReplicaState state = replica.word.state();
  if (!is_valid(state) || (access.write && state != ReplicaState::owned)) return false;
  if (access.queue == Queue::compute && (access.write || replica.copies.into() != nullptr)) return false;
  replica.copies.forget_done();
  replica.word.add_pin(access.write);
  replica.reopen();
  return true;
}

// I2: before an operator writes, every other valid replica is dropped. Releases the lock meanwhile.
Status Operands::make_exclusive(Block& block, NodeId id) {
  if (block.feeds_discarded()) [[unlikely]]
    return Status(Code::discarded, "blocks made of this one must be recomputed before it is written");
  std::array<NodeId, kMaxNodes> others;
  size_t count = 0;
  Status failure;
  for (const auto& at : table_.nodes()) {
    Replica& replica = block.replica(at->id);
    if (at->id == id || replica.word.state() == ReplicaState::absent) continue;
    if (replica.escapes != 0) pins_.poll_escapes();
    if (!replica.word.close_if_unpinned()) {
      failure = pins_.why_pinned(block, *at, " and cannot be written at " + table_.node(id).device->name());
      break;
    }
    others[count++] = at->id;
  }
  if (!failure.ok()) {
    for (size_t i = 0; i < count; ++i) block.replica(others[i]).reopen();
    return failure;
  }
  {
    const BlockMovingScope move(table_, block);
    for (size_t i = 0; i < count; ++i) mover_.release().drop_replica(block, others[i]);
    failure = mover_.open_replica(block, id);
  }
  if (failure.ok()) block.replica(id).transition(ReplicaEvent::write);
  return failure;
}

NodeId Operands::place(std::span<const Access> accesses, NodeId preferred) const {
  if (pins_.any_at_host()) [[unlikely]] {
    const bool stays = std::any_of(accesses.begin(), accesses.end(), [this](const Access& access) {
      return access.write && access.block->replica(table_.host()).user_pins != 0;
    });
    if (stays) return table_.host();
  }
  if (table_.computing().size() == 1) return table_.computing().front();
  std::array<NodeView, kMaxNodes> views;
  size_t count = 0;
  Bytes operands{0};
  bool all_replicated = true;
  for (const Access& access : accesses) {
    operands += access.block->size();
    all_replicated = all_replicated && access.block->replicated.load(std::memory_order_relaxed);
  }
  const bool any_works = std::any_of(table_.computing().begin(), table_.computing().end(),
                                     [this](NodeId id) { return !table_.device(id).is_lost(); });
  for (NodeId id : table_.computing()) {
    if (any_works && table_.device(id).is_lost()) continue;
    NodeView view{.node = id, .free = ledger_.free(id), .budget = ledger_.budget(id)};
    for (const Access& access : accesses) {
      const Replica& replica = access.block->replica(id);
      const bool counts = all_replicated || !access.block->replicated.load(std::memory_order_relaxed);
      // Bytes on their way here count too: the program has prefetched them.
      if (counts && replica.word.state() != ReplicaState::absent) view.operand_bytes += access.block->size();
      if (replica.user_pins != 0 || replica.escapes != 0) view.required = true;
    }
    views[count++] = view;
  }
  return choose_node(std::span(views.data(), count), operands, preferred);
}

// ---------------------------------------------------------------- births and ends

void Operands::adopt(Block& block, NodeId id, Memory memory) {
  const NeedsHeap books;
  Replica& replica = block.replica(id);
  // Its kernel is on the queue, and has no stamp until its operator ends (release_pins).
  const Stamp now = table_.now();
  replica.last_use.store(now, std::memory_order_relaxed);
  replica.last_write.store(kAllSoFar, std::memory_order_relaxed);
  replica.memory = std::move(memory);
  IK_CHECK(next_state(replica.word.state(), ReplicaEvent::born) == static_cast<uint8_t>(ReplicaState::owned),
           "only a block without bytes adopts some");
  replica.reuse_history.came(now, now);
  replica.word.be_born();
  const Node& at = table_.node(id);
  const bool stands = table_.nursery().add(block);
  // Read after the block has its place: a thread that searches for memory either finds it there or is seen
  // here.
  if (stands && !at.tight.load(std::memory_order_seq_cst)) [[likely]]
    return;
  TableLock lock(table_);
  if (stands) {
    table_.leave_nursery(block);
  } else {
    table_.list_new(block);
    table_.drain_nursery();  // All places are taken.
  }
}

void Operands::replace(Block& block, NodeId id, Memory memory, Bytes size) {
  const NeedsHeap books;
  Replica& replica = block.replica(id);
  table_.touched(replica);  // The kernel that resized it is on the queue.
  TableLock lock(table_);
  table_.wait_move(block);
  table_.leave_nursery(block);
  if (block.size() == Bytes(0)) {
    // No operator acquires a block without bytes, so empty replicas elsewhere may be valid still (I2).
    for (const auto& at : table_.nodes()) {
      if (at->id == id || block.replica(at->id).word.state() == ReplicaState::absent) continue;
      // There is no memory to free; a move on its way there is over.
      (void)mover_.release().detach(block, at->id, ReplicaEvent::free);
    }
    table_.promote_if_last(block);
  }
  block.set_size(size);
  if (replica.word.state() == ReplicaState::absent) {
    replica.memory = std::move(memory);
    replica.transition(ReplicaEvent::born);
    table_.list(block, id);
    return;
  }
  IK_CHECK(replica.word.state() == ReplicaState::owned, "only the owner's storage is resized");
  table_.unlist(block, id);
  replica.memory.swap(memory);
  table_.list(block, id);
  mover_.release().announce(table_.node(id));
  std::vector<Event> users = replica.copies.take();
  const BlockMovingScope move(table_, block);
  mover_.release().finish({id, std::move(memory), std::move(users)}, /*soon=*/false);
}

Status Operands::resize_unwritten(Block& block, Bytes size) {
  TableLock lock(table_);
  table_.wait_move(block);
  for (const auto& at : table_.nodes()) {
    if (block.replica(at->id).word.state() != ReplicaState::absent || block.discarded) {
      return Status(Code::invalid_argument, "the block has been written; its owner must resize it");
    }
  }
  block.set_size(size);
  return {};
}

Memory Operands::detach(Block& block, NodeId id) {
  TableLock lock(table_);
  table_.wait_move(block);
  table_.leave_nursery(block);
  if (block.replica(id).word.state() == ReplicaState::absent) return {};
  Released handed_over = mover_.release().detach(block, id, ReplicaEvent::free);
  table_.promote_if_last(block);
  const BlockMovingScope move(table_, block);
  table_.device(id).order_after(
      handed_over.users);  // I6: its new owner knows nothing of the engine's copies.
  return std::move(handed_over.memory);
}

Block::Space Operands::destroy(Block* block) {
  if (!retire(*block)) release_all(*block);
  return table_.end(block);
}

// Most blocks: no thread has looked for the block, so it has one replica, which no copy touches.
bool Operands::retire(Block& block) {
  const NodeId id = table_.any_replica(block);
  if (id == kNoNode || !table_.nursery().begin_death(block, id)) return false;
  Replica& replica = block.replica(id);
  Memory memory = std::move(replica.memory);
  IK_CHECK(next_state(replica.word.state(), ReplicaEvent::free) == static_cast<uint8_t>(ReplicaState::absent),
           "a block that ends has bytes to free");
  replica.word.be_gone();
  table_.observe(block, id, nullptr);
  memory.reset();
  table_.nursery().end_death(block);
  return true;
}

void Operands::release_all(Block& block) {
  Released freed;
  bool last = false;
  const auto release_one = [&]() IK_REQUIRES(engine_mutex) {
    if (const NodeId id = table_.any_replica(block); id != kNoNode) {
      freed = mover_.release().begin(block, id, ReplicaEvent::free);
    }
    last = table_.any_replica(block) == kNoNode;
  };
  {
    TableLock lock(table_);
    table_.wait_move(block);
    pins_.forget(block);
    mover_.cancel_next_hop(block);
    release_one();
    if (!last) table_.begin_move(block);  // Until it has ended, so that the evictor does not choose it.
  }
  while (freed.node != kNoNode) {
    table_.observe(block, freed.node, nullptr);
    mover_.release().finish(std::exchange(freed, {}), /*soon=*/false);
    if (last) break;  // Most blocks have one replica, and take the lock once.
    TableLock lock(table_);
    release_one();
    if (last) table_.forget_move(block);
  }
}

}  // namespace innkeeper
