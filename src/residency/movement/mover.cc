#include "residency/movement/mover.h"

#include <algorithm>
#include <utility>

#include "base/heap_reserve.h"
#include "base/test_point.h"
#include "residency/block/sources.h"
#include "residency/movement/moving_scopes.h"

namespace innkeeper {

Link& Mover::link_of(const Move& move) {
  return table_.node(move.to).kind == NodeKind::host ? table_.node(move.from).out : table_.node(move.to).in;
}

bool Mover::stays_closed(const Move& move) const {
  if (table_.node(move.from).kind != NodeKind::accelerator) return false;
  return move.leaves || table_.node(move.to).kind == NodeKind::host;
}

// ---------------------------------------------------------------- starts

Status Mover::fetch(Block& block, NodeId to, MoveIntent intent) {
  const NodeMovingScope moving(table_, table_.node(to));
  NodeId from = source_of(table_, block, to);
  if (from == kNoNode) return allocate_unwritten(block, to, intent);
  if (!table_.reaches(from, to)) {
    Replica& between = block.replica(table_.host());
    if (between.word.state() == ReplicaState::absent) IK_RETURN_IF_ERROR(fetch(block, table_.host(), intent));
    if (between.copies.move() != nullptr && intent.priority != Priority::demand) {
      start_next_hop(block, between.copies.shared_move(), to);
      reach("asked");
      return {};
    }
    IK_RETURN_IF_ERROR(finish_arrival(block, table_.host()));
    from = table_.host();
  }
  return start_move(block, from, to, intent, /*leaves=*/false);
}

// Allocates memory that is reserved. PyTorch's allocators lose the code of a refused charge, so the armed
// reservation keeps it.
Result<Memory> Mover::allocate(Reservation& reservation, Bytes size, Queue first) {
  const Bytes promised = reservation.left();
  ArmedReservation armed(reservation);
  Result<Memory> memory = table_.device(reservation.node()).allocate(size, first);
  // An accelerator charges nothing while the program captures a graph; the capture may have started since the
  // mover's thread looked.
  if (memory.ok() && promised != Bytes(0) && reservation.left() == promised)
    return Status(Code::busy, "memory was given that no node is charged for");
  if (!memory.ok() && armed.refused()) return Status(Code::busy, memory.status().message());
  return memory;
}

Status Mover::allocate_unwritten(Block& block, NodeId id, MoveIntent intent) {
  if (block.discarded.load(std::memory_order_relaxed))
    return Status(Code::discarded, "the block must be recomputed first");
  IK_RETURN_IF_ERROR(lost_with(table_, block));
  Replica& replica = block.replica(id);
  if (block.size() != Bytes(0)) {
    Result<Reservation> reservation = space_->reserve(id, block.size(), intent.mode);
    if (!reservation.ok()) return reservation.status();
    Result<Memory> memory = allocate(reservation.value(), block.size(), intent.first);
    if (!memory.ok()) return memory.status();
    if (intent.first != Queue::compute) {
      IK_RETURN_IF_ERROR(close_until(replica, id, intent.first));
    } else {
      table_.touched(replica);  // Orders copy queues after the previous users of the memory.
    }
    replica.memory = std::move(memory).value();
    table_.observe(block, id, replica.memory.data());
  }
  TableLock lock(table_);
  replica.transition(ReplicaEvent::born);
  table_.list(block, id);
  return {};
}

// Orders operators after the work that the queue holds now.
Status Mover::close_until(Replica& replica, NodeId id, Queue queue) {
  Result<Event> ready = table_.device(id).record(queue);
  if (!ready.ok()) {
    // The memory goes back, and no event orders its next owner after its previous users.
    (void)table_.device(id).synchronize();
    return ready.status();
  }
  if (ready.value() == nullptr) return {};
  replica.copies.set_into(std::move(ready).value());
  replica.word.close();
  return {};
}

Status Mover::start_move(Block& block, NodeId from, NodeId to, MoveIntent intent, bool leaves) {
  const NodeMovingScope moving(table_, table_.node(to));
  Replica& target = block.replica(to);
  const auto move = std::make_shared<Move>(block, from, to, intent.priority);
  move->leaves = leaves;
  {
    TableLock lock(table_);
    if (!block.replica(from).share()) return pins_.why_written(block, table_.node(from));
    target.transition(ReplicaEvent::fetch_begin);
  }
  struct Begun {  // Without a reservation the target is absent again, after an exception too.
    ~Begun() {
      if (reserved) return;
      const TableLock lock(table);
      target.transition(ReplicaEvent::fetch_fail);
    }
    BlockTable& table;
    Replica& target;
    bool reserved = false;
  } begun{table_, target};
  Result<Reservation> reservation = space_->reserve(to, block.size(), intent.mode);
  if (!reservation.ok()) return reservation.status();
  begun.reserved = true;
  TableLock lock(table_);
  move->reservation = std::move(reservation).value();
  move->become(MoveState::reserved);
  target.copies.set_move(move);
  table_.list(block, to);
  const bool only_host_computes = !table_.computing().empty() && table_.computing().front() == table_.host();
  if (table_.node(to).kind == NodeKind::accelerator || (to == table_.host() && only_host_computes))
    trackers_.arrived(BlockName(block.packed_name()), round_up(block.size()));
  Link& link = link_of(*move);
  // While the program captures a CUDA graph, the allocator charges no node, and a copy would become part of
  // the graph. A hint therefore waits until the capture ends.
  if (intent.priority != Priority::demand &&
      (link.waiting() != 0 || !link.is_free(links_) || !table_.device(from).may_be_helped() ||
       !table_.device(to).may_be_helped())) {
    link.wait(move);
    count_under_way();
    return {};
  }
  lock.unlock();
  IK_RETURN_IF_ERROR(issue(*move, intent.priority == Priority::demand ? Parts::all : Parts::one));
  if (is_all_issued(*move)) return {};
  lock.lock();
  link.wait(move);
  count_under_way();
  return {};
}

// Gives an arriving replica its memory. The queue that copies into it is ordered after the memory's previous
// users (I6).
Status Mover::allocate_destination(Move& move) {
  Block& block = *move.block;
  Replica& replica = block.replica(move.to);
  Result<Memory> memory = allocate(move.reservation, block.size(), Queue::copy_in);
  if (!memory.ok()) return memory.status();
  move.reservation.give_back();
  {
    TableLock lock(table_);
    table_.unlist(block, move.to);
    replica.memory = std::move(memory).value();
    table_.list(block, move.to);
  }
  table_.observe(block, move.to, replica.memory.data());
  return {};
}

Status Mover::issue(Move& move, Parts parts) {
  Block& block = *move.block;
  Replica& target = block.replica(move.to);
  const Bytes size = block.size();
  if (size != Bytes(0) && !target.memory) {
    if (Status furnished = allocate_destination(move); !furnished.ok()) return fail(move, furnished);
  }
  // The source may have left meanwhile. Another replica has the same bytes, but may not reach the
  // destination.
  NodeId from = move.from;
  if (!is_valid(block.replica(from).word.state())) from = source_of(table_, block, move.to);
  if (from == kNoNode) return fail(move, lost_with(table_, block));
  if (!table_.reaches(from, move.to))
    return fail(move, Status(Code::busy, "the block has gone elsewhere meanwhile"));
  const bool whole =
      table_.device(move.to).kind() == NodeKind::disk || table_.device(from).kind() == NodeKind::disk;
  if (whole)
    move.begun = Bytes(0);  // A disk copies a block at once: parts from another source are copied again.
  bool follows = move.begun != Bytes(0) && from == move.from;  // The parts before are on the same queue.
  {
    TableLock lock(table_);
    move.from = from;
    if (move.state() == MoveState::reserved) move.become(MoveState::copying);
  }
  while (move.begun < size) {
    const Bytes rest = size - move.begun;
    const Bytes part = whole || parts == Parts::all ? rest : std::min(rest, links_.part);
    Result<Event> copied = transfers_.copy(move, part, follows);
    if (!copied.ok()) return fail(move, copied.status());
    follows = true;
    move.begun += part;
    move.last = copied.value();
    target.copies.set_into(copied.value());
    block.replica(move.from).copies.add_out(copied.value());
    {
      TableLock lock(table_);
      link_of(move).began(copied.value(), part);
    }
    if (parts == Parts::one) break;
  }
  if (!is_all_issued(move)) return {};
  const bool out = move.leaves || (table_.node(move.to).kind != NodeKind::accelerator &&
                                   table_.node(move.from).kind != NodeKind::disk);
  transfers_.log_move(out ? "write back" : "fetch", block, move.from, move.to);
  if (!out) fetches_.fetch_add(1, std::memory_order_relaxed);
  if (move.to == table_.disk()) {
    TableLock lock(table_);
    if (move.leaves) {
      Replica& source = block.replica(move.from);
      source.vacating = true;
      table_.node(move.from).index->remove(block);  // An eviction on request has not taken it out.
      table_.node(move.from).vacating += source.memory.size();
    }
    watch(target.copies.shared_move());
    return {};
  }
  if (!stays_closed(move)) return {};
  target.word.close();
  TableLock lock(table_);
  release_.finish_move(block, move.to);
  target.transition(ReplicaEvent::fetch_end);
  return {};
}

// Drops the arriving replica. The next owner of its memory waits for copies that are on their way into it,
// and for its previous users.
Status Mover::fail(Move& move, Status why) {
  Block& block = *move.block;
  Replica& replica = block.replica(move.to);
  if (replica.memory) {
    // Only this queue is sure to be behind the memory's previous users and the copies.
    Device& runner = table_.device(table_.node(move.to).kind == NodeKind::host ? move.from : move.to);
    const Queue queue = table_.node(move.to).kind == NodeKind::host ? Queue::copy_out : Queue::copy_in;
    if (Result<Event> last = runner.record(queue); last.ok()) {
      if (last.value() != nullptr) replica.copies.set_into(std::move(last).value());
    } else {
      (void)runner.synchronize();
    }
  }
  move.status = why;
  release_.drop_replica(block, move.to);
  return why;
}

void Mover::start_disk_read(Block& block, NodeId to) {
  TableLock lock(table_);
  if (block.is_moving() || block.replica(to).word.state() != ReplicaState::absent ||
      block.replica(table_.host()).word.state() != ReplicaState::absent ||
      source_of(table_, block, to) != table_.disk()) {
    return;
  }
  const BlockMovingScope move(table_, block);
  (void)fetch(block, table_.host(), kDemand);
}

// No operator waits for the bytes: the next hop starts once this move has landed.
void Mover::start_next_hop(Block& block, MovePtr move, NodeId to) {
  TableLock lock(table_);
  cancel_next_hop(block);
  move->onward = to;
  going_on_[&block] = move;
  watch(std::move(move));
}

void Mover::cancel_next_hop(const Block& block) {
  if (going_on_.empty()) return;
  const auto found = going_on_.find(&block);
  if (found == going_on_.end()) return;
  found->second->onward = kNoNode;
  going_on_.erase(found);
}

// ---------------------------------------------------------------- arrival

Status Mover::finish_arrival(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  if (replica.word.state() != ReplicaState::arriving) return {};  // No copy fills it.
  const MovePtr move = replica.copies.shared_move();
  if (!is_all_issued(*move)) {
    IK_RETURN_IF_ERROR(issue(*move, Parts::all));
    if (replica.word.state() != ReplicaState::arriving) return {};
  }
  if (const Event into = replica.copies.into(); into != nullptr) {
    Status ordered = table_.device(id).wait(Queue::compute, into);
    if (!ordered.ok()) return fail(*move, ordered);
  }
  replica.copies.clear_into();
  table_.touched(replica);
  TableLock lock(table_);
  release_.finish_move(block, id);
  replica.transition(ReplicaEvent::fetch_end);
  return {};
}

// Copies into the replica: a host replica that was just written back. Copies out of it: a kernel must not
// overwrite bytes that a copy still reads.
Status Mover::open_replica(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  for (const Event& copy : replica.copies.out())
    IK_RETURN_IF_ERROR(table_.device(id).wait(Queue::compute, copy));
  if (!replica.copies.out().empty()) replica.last_use.store(table_.next_stamp(), std::memory_order_relaxed);
  if (const Event into = replica.copies.into(); into != nullptr) {
    IK_RETURN_IF_ERROR(table_.device(id).wait(Queue::compute, into));
    table_.touched(replica);
  }
  replica.copies.clear();
  replica.word.open();
  return {};
}

// ---------------------------------------------------------------- progress

void Mover::count_under_way() {
  size_t waiting = 0;
  for (const auto& at : table_.nodes()) waiting += at->in.waiting() + at->out.waiting();
  table_.signal().count(watched_.size() + waiting, waiting);
}

void Mover::watch(MovePtr move) {
  if (std::exchange(move->watched, true)) return;
  watched_.push_back(std::move(move));
  count_under_way();
  table_.signal().raise();  // The disk may be done already.
}

// Finishes moves that have landed, and starts moves whose link is free. A move whose block another thread
// works on is left for a later call.
void Mover::advance_moves() {
  const NeedsHeap books;
  TableLock lock(table_);
  for (size_t looks = std::min(watched_.size(), kLandedAtOnce); looks > 0 && !watched_.empty(); --looks) {
    const MovePtr move = std::move(watched_.front());
    watched_.pop_front();
    if (move->is_over() && !move->landing &&
        (move->onward == kNoNode || move->state() != MoveState::landed)) {
      continue;
    }
    watched_.push_back(move);  // Other threads may wait for it while it lands.
    if (move->block->is_moving() || !is_all_issued(*move) || !is_done(move->last)) continue;
    (void)land(move);
  }
  advance_links(Parts::one);
}

// Issues copies of moves that wait for a link: part by part while the link is free, or all of them.
void Mover::advance_links(Parts parts) {
  for (const auto& at : table_.nodes()) {
    for (Link* const link : {&at->in, &at->out}) advance_link(*link, parts);
  }
  count_under_way();
}

void Mover::advance_link(Link& link, Parts parts) {
  for (size_t moves = link.waiting(); moves > 0; --moves) {
    if (parts == Parts::one && !link.is_free(links_)) return;
    MovePtr move = link.take();
    if (move == nullptr) return;
    Block& block = *move->block;
    if (block.is_moving()) {
      link.wait(std::move(move));
      continue;
    }
    {
      const BlockMovingScope scope(table_, block);
      (void)issue(*move, parts);
    }
    if (!move->is_over() && !is_all_issued(*move)) link.put_back(std::move(move));
  }
}

// Finishes a move whose copies are done: its source leaves if it was to leave, and its next hop starts.
// Releases the lock meanwhile.
Status Mover::land(const MovePtr& move) {
  Block& block = *move->block;
  const NodeId onward = move->onward;
  cancel_next_hop(block);
  const Landing landing(*move);
  const BlockMovingScope scope(table_, block);
  struct Leaving {  // A source that has not left stays, after an exception too.
    ~Leaving() {
      const TableLock lock(table);
      release.cancel_vacate(block, node);
    }
    BlockTable& table;
    MemoryRelease& release;
    Block& block;
    const NodeId node;
  } const leaving{table_, release_, block, move->from};
  reach("land");
  Status status;
  if (move->last != nullptr && !move->is_over()) status = move->last->synchronize();
  status = status.ok() ? finish_arrival(block, move->to)
                       : fail(*move, status);  // Does not block: the copies are done.
  reach("landed");
  Replica& source = block.replica(move->from);
  if (source.vacating && status.ok() && source.word.close_if_unpinned()) {
    space_->finish_eviction(table_.node(move->from), block);
  }
  if (!status.ok() || onward == kNoNode) return status;
  if (block.replica(onward).word.state() != ReplicaState::absent) return {};
  return fetch(block, onward, move->priority == Priority::planned ? kPlanned : kHint);
}

void Mover::issue_waiting() {
  TableLock lock(table_);
  const MoverThread::Rest rest(thread_);
  advance_links(Parts::all);
}

// ---------------------------------------------------------------- waiting, and cancelling

Bytes Mover::landing_soon(const Node& node) const {
  Bytes soon = node.vacating;
  if (soon == Bytes(0)) return soon;
  for (const Block* block : table_.moving()) {
    const Replica& source = block->replica(node.id);
    if (source.vacating && !table_.may_await(*block)) soon -= source.memory.size();
  }
  return soon;
}

Status Mover::wait_landing(Node& node) {
  const auto is_over = [](const Move& move) { return move.is_over() && !move.landing; };
  while (!watched_.empty() && is_over(*watched_.front()) && watched_.front()->onward == kNoNode)
    watched_.pop_front();
  const auto may_wait = [&](const MovePtr& move) IK_REQUIRES(engine_mutex) {
    return !is_over(*move) && move->from == node.id && move->block->replica(node.id).vacating &&
           table_.may_await(*move->block);
  };
  const auto found = std::find_if(watched_.begin(), watched_.end(), may_wait);
  return found == watched_.end() ? Status() : wait_landed(*found);
}

Status Mover::wait_landed(MovePtr move) {
  {
    const Unlocked gap(table_);
    reach("wait landing");
    if (move->last != nullptr) (void)move->last->synchronize();
  }
  while (move->landing || !move->is_over()) {
    if (move->landing || move->block->is_moving()) {
      if (!table_.may_await(*move->block)) return {};
      table_.wait_change();
      continue;
    }
    (void)land(move);
  }
  table_.notify();
  return move->status;
}

bool Mover::cancel_last_waiting(Node& node) {
  if (!table_.signal().is_needed()) return false;
  for (const auto& at : table_.nodes()) {
    if (node.kind == NodeKind::host ? at->id == node.id : at->id != node.id) continue;
    Link& link = node.kind == NodeKind::host ? at->out : at->in;
    const MovePtr move = link.take_last();
    if (move == nullptr) continue;
    if (move->block->is_moving()) {
      link.wait(move);
      continue;
    }
    const BlockMovingScope scope(table_, *move->block);
    release_.drop_replica(*move->block, move->to);
    return true;
  }
  return false;
}

void Mover::cancel_planned(int64_t program) {
  const NeedsHeap books;
  if (!table_.signal().is_needed()) return;
  TableLock lock(table_);
  const auto is_its = [&](const Move& move) IK_REQUIRES(engine_mutex) {
    const BlockName name(move.block->packed_name());
    return name.program() == program && !move.block->is_moving();
  };
  for (const NodeId each : table_.computing()) {
    while (const MovePtr move = table_.node(each).in.take_last_planned(is_its)) {
      const BlockMovingScope scope(table_, *move->block);
      release_.drop_replica(*move->block, move->to);
    }
  }
  count_under_way();
}

void Mover::reset_counts() {
  fetches_.store(0);
  transfers_.reset_counts();
}

}  // namespace innkeeper
