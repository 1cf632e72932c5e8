// Moves: how they begin, go on, land and fail (move.h). What works on a block runs without the engine's lock
// (I10), on a block that this thread has marked as moving; valid replicas may be pinned and read meanwhile.
#include <algorithm>
#include <utility>

#include "base/heap_reserve.h"
#include "base/log.h"
#include "base/test_point.h"
#include "residency/engine.h"
#include "residency/moving.h"

namespace innkeeper {

Link& Engine::link_of(const Move& move) {
  return node(move.to).kind == NodeKind::host ? node(move.from).out : node(move.to).in;
}

// What comes from an accelerator to the host, or leaves one for another, is valid as soon as its copies are
// on their queue, and closed: no thread need wait for it yet (open_replica).
bool Engine::stays_closed(const Move& move) const {
  if (node(move.from).kind != NodeKind::accelerator) return false;
  return move.leaves || node(move.to).kind == NodeKind::host;
}

// Makes memory at `to` and, unless the block was never written, asks for the copies that fill it.
Status Engine::fetch(Block& block, NodeId to, MoveIntent intent) {
  const Moving moving(*this, node(to));
  NodeId from = source_of(block, to);
  if (from == kNoNode) return allocate_unwritten(block, to, intent);
  if (!reaches(from, to)) {
    Replica& between = block.replica(host_);
    if (between.word.state() == ReplicaState::absent) IK_RETURN_IF_ERROR(fetch(block, host_, intent));
    if (between.copies.move() != nullptr && intent.priority != Priority::demand) {
      start_next_hop(block, between.copies.shared_move(), to);
      reach("asked");
      return {};
    }
    IK_RETURN_IF_ERROR(finish_arrival(block, host_));
    from = host_;
  }
  return start_move(block, from, to, intent, /*leaves=*/false);
}

// Memory for which there is a reservation. A refusal of others' may have lost its code on its way through an
// allocator.
Result<Memory> Engine::allocate(Reservation& reservation, Bytes size, Queue first) {
  const Bytes promised = reservation.left();
  ArmedReservation armed(reservation);
  Result<Memory> memory = device(reservation.node()).allocate(size, first);
  // A card charges nothing while the program captures a graph, which may have begun since the helper looked.
  if (memory.ok() && promised != Bytes(0) && reservation.left() == promised)
    return Status(Code::busy, "memory was given that no node is charged for");
  if (!memory.ok() && armed.refused()) return Status(Code::busy, memory.status().message());
  return memory;
}

Status Engine::allocate_unwritten(Block& block, NodeId id, MoveIntent intent) {
  if (block.dropped.load(std::memory_order_relaxed))
    return Status(Code::dropped, "the block's bytes must be computed again first");
  IK_RETURN_IF_ERROR(lost_with(block));
  Replica& replica = block.replica(id);
  if (block.size() != Bytes(0)) {
    Result<Reservation> reservation = reserve(id, block.size(), intent.room);
    if (!reservation.ok()) return reservation.status();
    Result<Memory> memory = allocate(reservation.value(), block.size(), intent.first);
    if (!memory.ok()) return memory.status();
    if (intent.first != Queue::compute) {
      IK_RETURN_IF_ERROR(close_until(replica, id, intent.first));
    } else {
      touched(replica);  // Orders copy queues after the previous users of the memory.
    }
    replica.memory = std::move(memory).value();
    observe(block, id, replica.memory.data());
  }
  MutexLock lock(mutex_);
  transition(replica, ReplicaEvent::born);
  list(block, id);
  return {};
}

// Operators come after what the queue holds by now.
Status Engine::close_until(Replica& replica, NodeId id, Queue queue) {
  Result<Event> ready = device(id).record(queue);
  if (!ready.ok()) {
    (void)device(id).synchronize();  // the memory goes back, and only that queue comes after who used it
    return ready.status();
  }
  if (ready.value() == nullptr) return {};
  replica.copies.set_into(std::move(ready).value());
  replica.word.close();
  return {};
}

Status Engine::start_move(Block& block, NodeId from, NodeId to, MoveIntent intent, bool leaves) {
  const Moving moving(*this, node(to));
  Replica& target = block.replica(to);
  const auto move = std::make_shared<Move>(block, from, to, intent.priority);
  move->leaves = leaves;
  {
    MutexLock lock(mutex_);
    if (!share(block.replica(from))) return written(block, node(from));
    transition(target, ReplicaEvent::fetch_begin);
  }
  Result<Reservation> reservation = reserve(to, block.size(), intent.room);
  MutexLock lock(mutex_);
  if (!reservation.ok()) {
    move->become(MoveState::failed);
    transition(target, ReplicaEvent::fetch_fail);
    return reservation.status();
  }
  move->reservation = std::move(reservation).value();
  move->become(MoveState::reserved);
  target.copies.set_move(move);
  list(block, to);
  const bool only_host_computes = !computing_.empty() && computing_.front() == host_;
  if (node(to).kind == NodeKind::accelerator || (to == host_ && only_host_computes))
    trackers_.arrived(BlockName(block.name_.load(std::memory_order_relaxed)), round_up(block.size()));
  Link& link = link_of(*move);
  // While the program captures a CUDA graph, the allocator charges no node, and a copy would become part of
  // the graph. A hint therefore waits until the capture ends.
  if (intent.priority != Priority::demand && (link.waiting() != 0 || !link.is_free(links_) ||
                                              !device(from).may_be_helped() || !device(to).may_be_helped())) {
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

// Gives an arriving replica its memory. The queue that copies into it comes after the last user of the memory
// before (I6).
Status Engine::allocate_destination(Move& move) {
  Block& block = *move.block;
  Replica& replica = block.replica(move.to);
  Result<Memory> memory = allocate(move.reservation, block.size(), Queue::copy_in);
  if (!memory.ok()) return memory.status();
  move.reservation.give_back();
  {
    MutexLock lock(mutex_);
    unlist(block, move.to);
    replica.memory = std::move(memory).value();
    list(block, move.to);
  }
  observe(block, move.to, replica.memory.data());
  return {};
}

Status Engine::issue(Move& move, Parts parts) {
  Block& block = *move.block;
  Replica& target = block.replica(move.to);
  const Bytes size = block.size();
  if (size != Bytes(0) && !target.memory) {
    if (Status furnished = allocate_destination(move); !furnished.ok()) return fail(move, furnished);
  }
  // The replica that it was to come from may have left; another one has the same bytes, but perhaps not here.
  NodeId from = move.from;
  if (!is_valid(block.replica(from).word.state())) from = source_of(block, move.to);
  if (from == kNoNode) return fail(move, lost_with(block));
  if (!reaches(from, move.to))
    return fail(move, Status(Code::busy, "the block has gone elsewhere meanwhile"));
  const bool whole = device(move.to).kind() == NodeKind::disk || device(from).kind() == NodeKind::disk;
  if (whole) move.begun = Bytes(0);  // parts so far came from elsewhere: a disk has no way to add to them
  bool follows = move.begun != Bytes(0) && from == move.from;  // on the queue of the parts before
  {
    MutexLock lock(mutex_);
    move.from = from;
    if (move.state() == MoveState::reserved) move.become(MoveState::copying);
  }
  while (move.begun < size) {
    const Bytes rest = size - move.begun;
    const Bytes part = whole || parts == Parts::all ? rest : std::min(rest, links_.part);
    Result<Event> copied = watched_copy(move, part, follows);
    if (!copied.ok()) return fail(move, copied.status());
    follows = true;
    move.begun += part;
    move.last = copied.value();
    target.copies.set_into(copied.value());
    block.replica(move.from).copies.add_out(copied.value());
    {
      MutexLock lock(mutex_);
      link_of(move).began(copied.value(), part);
    }
    if (parts == Parts::one) break;
  }
  if (!is_all_issued(move)) return {};
  const bool out =
      move.leaves || (node(move.to).kind != NodeKind::accelerator && node(move.from).kind != NodeKind::disk);
  log_move(out ? "write back" : "fetch", block, move.from, move.to);
  if (!out) fetches_.fetch_add(1, std::memory_order_relaxed);
  if (move.to == disk_) {
    MutexLock lock(mutex_);
    if (move.leaves) {
      Replica& source = block.replica(move.from);
      source.vacating = true;
      node(move.from).index->remove(block);  // there still where the user asked for it
      node(move.from).vacating += source.memory.size();
    }
    watch(target.copies.shared_move());
    return {};
  }
  if (!stays_closed(move)) return {};
  target.word.close();
  MutexLock lock(mutex_);
  finish_move(block, move.to);
  transition(target, ReplicaEvent::fetch_end);
  return {};
}

// The replica gives up its place. Copies that are on their way into its memory, and its users before,
// are waited for by the next owner.
Status Engine::fail(Move& move, Status why) {
  Block& block = *move.block;
  Replica& replica = block.replica(move.to);
  if (replica.memory) {
    // Only that queue is sure to come after who used the memory before, and after the copies.
    Device& runner = device(node(move.to).kind == NodeKind::host ? move.from : move.to);
    const Queue queue = node(move.to).kind == NodeKind::host ? Queue::copy_out : Queue::copy_in;
    if (Result<Event> last = runner.record(queue); last.ok()) {
      if (last.value() != nullptr) replica.copies.set_into(std::move(last).value());
    } else {
      (void)runner.synchronize();
    }
  }
  move.status = why;
  drop_replica(block, move.to);
  return why;
}

// ---------------------------------------------------------------- their ends

// The move into a replica is over: it is valid now, or gives up its place.
void Engine::finish_move(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  const MovePtr move = replica.copies.shared_move();
  if (move == nullptr) return;
  if (move->leaves && move->to == disk_ && !move->landing) cancel_vacate(block, move->from);
  move->reservation.give_back();
  if (!move->status.ok()) {
    move->become(MoveState::failed);
  } else {
    move->become(move->state() == MoveState::copying ? MoveState::landed : MoveState::cancelled);
  }
  replica.copies.clear_move();
}

// A replica that was to leave once a move has landed: that move is over, or the replica goes another way.
void Engine::cancel_vacate(Block& block, NodeId id) {
  Replica& source = block.replica(id);
  if (!source.vacating) return;
  source.vacating = false;
  node(id).vacating -= source.memory.size();
}

void Engine::count_under_way() {
  size_t waiting = 0;
  for (const auto& at : nodes_) waiting += at->in.waiting() + at->out.waiting();
  under_way_.store(static_cast<int64_t>(watched_.size() + waiting), std::memory_order_relaxed);
  if (polls_ && waiting != 0 && helper_sleeps_) landed_.notify_all();
}

void Engine::watch(MovePtr move) {
  if (std::exchange(move->watched, true)) return;
  watched_.push_back(std::move(move));
  count_under_way();
  wake_helper();  // the disk may have been faster
}

// No operator waits for the bytes: they go on from where a move brings them once they are there.
void Engine::start_next_hop(Block& block, MovePtr move, NodeId to) {
  MutexLock lock(mutex_);
  cancel_next_hop(block);
  move->onward = to;
  going_on_[&block] = move;
  watch(std::move(move));
}

// No move goes on with the block's bytes from where they are going now.
void Engine::cancel_next_hop(Block& block) {
  if (going_on_.empty()) return;
  const auto found = going_on_.find(&block);
  if (found == going_on_.end()) return;
  found->second->onward = kNoNode;
  going_on_.erase(found);
}

// Finishes what has landed, starts what may start. Moves whose blocks another thread works on come later.
void Engine::advance_moves() {
  const NeedsHeap books;
  MutexLock lock(mutex_);
  for (size_t looks = std::min(watched_.size(), kLandedAtOnce); looks > 0 && !watched_.empty(); --looks) {
    const MovePtr move = std::move(watched_.front());
    watched_.pop_front();
    if (move->is_over() && !move->landing &&
        (move->onward == kNoNode || move->state() != MoveState::landed)) {
      continue;
    }
    watched_.push_back(move);  // while it lands, others may wait for it
    if (is_moving(*move->block) || !is_all_issued(*move) || !is_done(move->last)) continue;
    (void)land(move);
  }
  advance_links(Parts::one);
}

// Goes on with what waits for a link: part by part while the link has time, or all of it whether it has or
// not.
void Engine::advance_links(Parts parts) {
  for (const auto& at : nodes_) {
    for (Link* const link : {&at->in, &at->out}) advance_link(*link, parts);
  }
  count_under_way();
}

void Engine::advance_link(Link& link, Parts parts) {
  for (size_t moves = link.waiting(); moves > 0; --moves) {
    if (parts == Parts::one && !link.is_free(links_)) return;
    MovePtr move = link.take();
    if (move == nullptr) return;
    Block& block = *move->block;
    if (is_moving(block)) {
      link.wait(std::move(move));
      continue;
    }
    {
      const MoveScope scope(*this, block);
      (void)issue(*move, parts);
    }
    if (!move->is_over() && !is_all_issued(*move)) link.put_back(std::move(move));
  }
}

// Its copies are done: what was to leave with it leaves, and what goes on from there goes on. The lock is let
// go meanwhile.
Status Engine::land(const MovePtr& move) {
  Block& block = *move->block;
  const NodeId onward = move->onward;
  cancel_next_hop(block);
  const Landing landing(*move);
  const MoveScope scope(*this, block);
  reach("land");
  Status status;
  if (move->last != nullptr && !move->is_over()) status = move->last->synchronize();
  status = status.ok() ? finish_arrival(block, move->to) : fail(*move, status);  // at once: it is done
  reach("landed");
  Replica& source = block.replica(move->from);
  if (source.vacating && status.ok() && source.word.close_if_unpinned()) {
    vacate(node(move->from), block);
  } else if (source.vacating) {
    MutexLock lock(mutex_);
    cancel_vacate(block, move->from);
  }
  if (!status.ok() || onward == kNoNode) return status;
  if (block.replica(onward).word.state() != ReplicaState::absent) return {};
  return fetch(block, onward, move->priority == Priority::planned ? kPlanned : kHint);
}

// What had to be evicted by an operator that needed its room says that more will have to. So the next of what
// is dirty is written to the disk ahead, as many bytes as that was and when the disk has time: then it can
// leave at once. Where everything fits nothing is evicted, and nothing is written. (From an accelerator it
// would gain nothing: there the copy out runs beside the kernels anyway, docs/decisions/0009.)
void Engine::write_back_ahead(Node& node) {
  MutexLock lock(mutex_);
  Link& link = this->node(disk_).in;
  if (node.ahead.load(std::memory_order_relaxed) <= 0 || link.waiting() != 0 || !link.is_free(links_)) return;
  std::vector<Block*> looked_at;
  Block* dirty = nullptr;
  while (dirty == nullptr && looked_at.size() < kCleanAhead) {
    Block* const block = node.index->pop(Bytes(node.budget.load(std::memory_order_relaxed)));
    if (block == nullptr) break;
    looked_at.push_back(block);
    const ReplicaWord& word = block->replica(node.id).word;
    if (word.state() == ReplicaState::owned && word.pins() == 0 && !is_moving(*block)) dirty = block;
  }
  for (Block* block : looked_at) node.index->add(*block);
  if (dirty == nullptr) return node.ahead.store(0, std::memory_order_relaxed);
  node.ahead.fetch_sub(dirty->size().count(), std::memory_order_relaxed);
  const MoveScope scope(*this, *dirty);
  (void)start_move(*dirty, node.id, disk_, {Reserve::free_room, Priority::hint}, /*leaves=*/false);
}

// ---------------------------------------------------------------- waiting for them

Bytes Engine::landing_soon(const Node& node) const {
  Bytes soon = node.vacating;
  if (soon == Bytes(0)) return soon;
  for (const Block* block : moving_) {  // what this thread moves does not land while it waits
    const Replica& source = block->replica(node.id);
    if (block->mover_ == &thread_state() && source.vacating) soon -= source.memory.size();
  }
  return soon;
}

// Waits until a replica that is vacating has left the node, or has not because its move failed.
Status Engine::wait_landing(Node& node) {
  const auto is_over = [](const Move& move) { return move.is_over() && !move.landing; };
  while (!watched_.empty() && is_over(*watched_.front()) && watched_.front()->onward == kNoNode)
    watched_.pop_front();
  const auto found = std::find_if(watched_.begin(), watched_.end(), [&](const MovePtr& move) {
    return !is_over(*move) && move->from == node.id && move->block->mover_ != &thread_state() &&
           move->block->replica(node.id).vacating;
  });
  return found == watched_.end() ? Status() : wait_landed(*found);
}

// Waits until a move has landed, and what was to leave with it has left. Its block may be gone afterwards.
Status Engine::wait_landed(MovePtr move) {
  mutex_.unlock();
  reach("wait landing");
  if (move->last != nullptr) (void)move->last->synchronize();
  mutex_.lock();
  while (move->landing || !move->is_over()) {
    if (move->landing || is_moving(*move->block)) {
      wait_change();
      continue;
    }
    (void)land(move);
  }
  changed_.notify_all();
  return move->status;
}

// The last move into the node that has room and no copy yet gives the room up. Returns whether there was any.
bool Engine::cancel_last_waiting(Node& node) {
  if (under_way_.load(std::memory_order_relaxed) == 0) return false;
  for (const auto& at : nodes_) {
    if (node.kind == NodeKind::host ? at->id == node.id : at->id != node.id) continue;
    Link& link = node.kind == NodeKind::host ? at->out : at->in;
    const MovePtr move = link.take_last();
    if (move == nullptr) continue;
    if (is_moving(*move->block)) {
      link.wait(move);
      continue;
    }
    const MoveScope scope(*this, *move->block);
    drop_replica(*move->block, move->to);
    return true;
  }
  return false;
}

// Has a disk begin to read what an operator at `to` is about to wait for, beside what it reads already.
void Engine::start_disk_read(Block& block, NodeId to) {
  MutexLock lock(mutex_);
  if (is_moving(block) || block.replica(to).word.state() != ReplicaState::absent ||
      block.replica(host_).word.state() != ReplicaState::absent || source_of(block, to) != disk_) {
    return;
  }
  const MoveScope move(*this, block);
  (void)fetch(block, host_, kDemand);
}

}  // namespace innkeeper
