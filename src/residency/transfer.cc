// Copies between nodes. Everything here runs without the engine's lock (I10), on a block that this thread has
// marked as moving, so nobody else changes its replicas; valid replicas may be pinned and read meanwhile.
#include <algorithm>

#include "base/log.h"
#include "base/test_point.h"
#include "residency/engine.h"
#include "residency/moving.h"

namespace innkeeper {

NodeId Engine::backing(const Node& node) const {
  switch (node.kind) {
    case NodeKind::accelerator: return host_;
    case NodeKind::host: return disk_;
    case NodeKind::disk: return kNoNode;
  }
  return kNoNode;
}

// Work on the compute queue so far may touch it, and may have written it.
void Engine::touched(Replica& replica) {
  const Stamp stamp = next_stamp();
  replica.last_use.store(stamp, std::memory_order_relaxed);
  replica.last_write.store(stamp, std::memory_order_relaxed);
}

// The failure for a block without a readable replica; ok if it has none at all: nobody wrote to it yet.
Status Engine::lost_with(const Block& block) const {
  for (const auto& at : nodes_) {
    if (!is_valid(block.replica(at->id).word.state()) || !at->device->is_lost()) continue;
    return Status(Code::device_lost, "block " + std::to_string(static_cast<uint64_t>(block.id())) + " (" +
                                         to_string(block.size()) + ") was only on " + at->device->name() +
                                         " and is lost with it: " + at->device->loss().message());
  }
  return {};
}

Status Engine::check_not_lost(const Block& block) const {
  const bool readable =
      std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& at) { return has_replica(block, at->id); });
  return readable ? Status() : lost_with(block);
}

// The valid replica that is cheapest to copy to `to`: a peer that can be reached directly, else the host,
// else any.
NodeId Engine::source_of(const Block& block, NodeId to) const {
  NodeId best = kNoNode;
  int best_rank = 0;
  for (const auto& at : nodes_) {
    if (at->id == to || !has_replica(block, at->id)) continue;
    int rank = 1;
    if (at->kind == NodeKind::host) rank = 2;
    if (at->kind == NodeKind::accelerator && to != host_ && device(to).can_copy_from(*at->device)) rank = 3;
    if (rank > best_rank) {
      best_rank = rank;
      best = at->id;
    }
  }
  return best;
}

void Engine::log_move(const char* verb, const Block& block, NodeId from, NodeId to) const {
  if (!log_enabled(LogLevel::info)) return;
  log(LogLevel::info, std::string(verb) + " block " + std::to_string(static_cast<uint64_t>(block.id())) +
                          " (" + to_string(block.size()) + ") from " + device(from).name() + " to " +
                          device(to).name());
}

// Has a queue that starts a copy wait for what fills the source (I5): its last writer, not what was launched
// since, and the copy into it if that is under way. Escaped memory may be written by anybody at any time.
Status Engine::order_copy(Device& runner, Queue queue, const Block& block, NodeId from) const {
  const Replica& source = block.replica(from);
  if (const auto& stamps = node(from).stamps) {
    const Stamp written = source.escapes != 0 ? kAllSoFar : source.last_write.load(std::memory_order_relaxed);
    Result<Event> passed = stamps->after(written);
    if (!passed.ok()) return passed.status();
    IK_RETURN_IF_ERROR(runner.wait(queue, passed.value()));
  }
  const Event into = source.copies.into();
  return into == nullptr ? Status() : runner.wait(queue, into);
}

// Queues the copy into `memory`, at `to`. Two of the three: the source is host memory, or the destination is,
// or both ends are accelerators that reach each other.
Result<Event> Engine::queue_copy(const Block& block, void* memory, NodeId to, NodeId from) {
  Device& target = device(to);
  Device& origin = device(from);
  const void* source = block.replica(from).memory.data();
  const Bytes size = block.size();
  const NodeKind target_kind = target.kind();
  const NodeKind origin_kind = origin.kind();
  Result<Event> copied = Event();
  if (target_kind == NodeKind::accelerator && origin_kind == NodeKind::accelerator) {
    IK_RETURN_IF_ERROR(order_copy(target, Queue::copy_in, block, from));
    copied = target.copy_peer(memory, origin, source, size);
    if (copied.ok()) bytes_between_.fetch_add(size.count(), std::memory_order_relaxed);
  } else if (origin_kind == NodeKind::host) {
    IK_RETURN_IF_ERROR(order_copy(target, Queue::copy_in, block, from));
    copied = target.copy_in(memory, source, size);
    if (copied.ok()) {
      auto& counter = target_kind == NodeKind::disk ? bytes_written_back_ : bytes_fetched_;
      counter.fetch_add(size.count(), std::memory_order_relaxed);
    }
  } else {
    IK_CHECK(target_kind == NodeKind::host, "a copy has the host at one end");
    IK_RETURN_IF_ERROR(order_copy(origin, Queue::copy_out, block, from));
    copied = origin.copy_out(memory, source, size);
    if (copied.ok()) {
      auto& counter = origin_kind == NodeKind::disk ? bytes_fetched_ : bytes_written_back_;
      counter.fetch_add(size.count(), std::memory_order_relaxed);
    }
  }
  if (copied.ok() && target_kind == NodeKind::accelerator)
    thread_state().arrived += round_up(size).count();  // as plans count
  return copied;
}

Result<Engine::Filled> Engine::fill(Block& block, NodeId to, NodeId from) {
  const Bytes size = block.size();
  if (size == Bytes(0)) return Filled{};
  Device& target = device(to);
  // The queue that copies into it comes after whoever used the memory before (I6).
  Result<Memory> memory = target.allocate(size, Queue::copy_in);
  if (!memory.ok()) return memory.status();
  Result<Event> copied = queue_copy(block, memory.value().data(), to, from);
  if (copied.ok()) return Filled{std::move(memory).value(), std::move(copied).value()};
  // Whoever used it before may still be there, and only that queue is sure to come after them.
  std::vector<Event> users;
  if (Result<Event> waited = target.record(Queue::copy_in); waited.ok()) {
    users.push_back(std::move(waited).value());
  } else {
    (void)target.synchronize();
  }
  target.give_back(std::move(memory).value(), users);
  return copied.status();
}

// Makes memory at `to` and, unless the block was never written, queues the copy that fills it.
Status Engine::bring(Block& block, NodeId to) {
  const Moving moving(*this, node(to));
  Replica& replica = block.replica(to);
  NodeId from = source_of(block, to);
  if (from == kNoNode) {
    IK_RETURN_IF_ERROR(lost_with(block));
    if (block.size() != Bytes(0)) {
      Result<Memory> memory = device(to).allocate(block.size());
      if (!memory.ok()) return memory.status();
      replica.memory = std::move(memory).value();
      observe(block, to, replica.memory.data());
    }
    MutexLock lock(mutex_);
    transition(replica, ReplicaEvent::born);
    list(block, to);
    return {};
  }
  const bool direct = from == host_ || to == host_ || device(to).can_copy_from(device(from));
  if (!direct) {
    if (block.replica(host_).word.state() == ReplicaState::absent) IK_RETURN_IF_ERROR(bring(block, host_));
    IK_RETURN_IF_ERROR(finish_arrival(block, host_));
    from = host_;
  }
  Replica& source = block.replica(from);
  {
    MutexLock lock(mutex_);
    if (!lend(source)) return written(block, node(from));
    transition(replica, ReplicaEvent::fetch_begin);
  }
  Result<Filled> filled = fill(block, to, from);
  if (!filled.ok()) {
    MutexLock lock(mutex_);
    transition(replica, ReplicaEvent::fetch_fail);
    inherit_if_last(block);
    return filled.status();
  }
  log_move("fetch", block, from, to);
  replica.memory = std::move(filled.value().memory);
  replica.copies.set_into(filled.value().event);
  source.copies.add_out(filled.value().event);
  fetches_.fetch_add(1, std::memory_order_relaxed);
  observe(block, to, replica.memory.data());
  MutexLock lock(mutex_);
  list(block, to);
  return {};
}

// Orders the node's compute queue after the copy that fills the replica; then operators may read it.
Status Engine::finish_arrival(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  if (replica.word.state() != ReplicaState::arriving) return {};  // it was born, not copied
  if (const Event into = replica.copies.into(); into != nullptr) {
    Status ordered = device(id).wait(Queue::compute, into);
    if (!ordered.ok()) {
      drop_replica(block, id);  // after the copy, which may still be under way (I5)
      return ordered;
    }
  }
  replica.copies.clear_into();
  touched(replica);
  MutexLock lock(mutex_);
  transition(replica, ReplicaEvent::fetch_end);
  return {};
}

// Lets operators pin a valid replica again that was closed because copies were under way: into it (a host
// replica just written back), or out of it (the owner: a kernel must not overwrite what a copy still reads).
Status Engine::open_replica(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  for (const Event& copy : replica.copies.out()) IK_RETURN_IF_ERROR(device(id).wait(Queue::compute, copy));
  if (const Event into = replica.copies.into(); into != nullptr) {
    IK_RETURN_IF_ERROR(device(id).wait(Queue::compute, into));
    touched(replica);
  }
  replica.copies.clear();
  replica.word.open();
  return {};
}

// Copies a valid replica to its backing node, where it becomes shared but closed until the copy is done.
Status Engine::copy_to_backing(Block& block, NodeId from, NodeId to) {
  const Moving moving(*this, node(to));
  Replica& target = block.replica(to);
  Replica& source = block.replica(from);
  {
    MutexLock lock(mutex_);
    if (!lend(source)) return written(block, node(from));
    transition(target, ReplicaEvent::fetch_begin);
  }
  Result<Filled> filled = fill(block, to, from);
  if (!filled.ok()) {
    MutexLock lock(mutex_);
    transition(target, ReplicaEvent::fetch_fail);
    inherit_if_last(block);
    return filled.status();
  }
  log_move("write back", block, from, to);
  target.memory = std::move(filled.value().memory);
  const Event copied = filled.value().event;
  source.copies.add_out(copied);
  if (device(to).kind() == NodeKind::disk || copied == nullptr) {
    // A disk may be full: the source must not go before the bytes are safe (I7).
    Status outcome = copied == nullptr ? Status() : copied->synchronize();
    if (!outcome.ok()) {
      target.memory.reset();
      MutexLock lock(mutex_);
      transition(target, ReplicaEvent::fetch_fail);
      inherit_if_last(block);
      return outcome;
    }
  } else {
    target.copies.set_into(copied);
    target.word.close();
  }
  observe(block, to, target.memory.data());
  MutexLock lock(mutex_);
  list(block, to);
  transition(target, ReplicaEvent::fetch_end);
  return {};
}

// Gives up a replica whose bytes are valid elsewhere, or that is arriving. The caller closed it (no pins).
void Engine::drop_replica(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  observe(block, id, nullptr);
  Released dropped;
  {
    MutexLock lock(mutex_);
    const bool arriving = replica.word.state() == ReplicaState::arriving;
    dropped = begin_release(block, id, arriving ? ReplicaEvent::fetch_fail : ReplicaEvent::drop);
    replica.word.open();
    inherit_if_last(block);
  }
  reach("dropped");
  release_memory(std::move(dropped), /*soon=*/true);
}

Engine::Released Engine::begin_release(Block& block, NodeId id, ReplicaEvent event) {
  Replica& replica = block.replica(id);
  unlist(block, id);
  begin_release(node(id));
  transition(replica, event);
  return {id, std::move(replica.memory), replica.copies.take(),
          replica.last_use.load(std::memory_order_relaxed)};
}

void Engine::begin_release(Node& node) { ++node.moving; }

// Gives an accelerator's memory back (I5, I6): to a device that remembers its users with them, so that only
// who is given it waits for them, and that no longer than needed. Else its compute queue waits for the
// copies.
void Engine::give_back(Node& node, Released released, bool soon) {
  Device& device = *node.device;
  if (device.remembers_users() && (soon || !released.users.empty())) {
    Result<Event> last = node.stamps->after(released.last_use);
    if (last.ok()) {
      released.users.push_back(std::move(last).value());
      return device.give_back(std::move(released.memory), released.users);
    }
  }
  device.order_after(released.users);
}

// Gives memory back as soon as no copy touches it (I5, I6). Host memory is parked until the copies are done.
// Each time that some is, a few of those parked before are looked at, so that they never pile up.
void Engine::release_memory(Released released, bool soon) {
  Node& at = node(released.node);
  if (at.kind == NodeKind::accelerator) {
    if (released.memory) give_back(at, std::move(released), soon);
  } else {
    std::erase_if(released.users, [](const Event& event) { return is_done(event); });
    if (released.memory && !released.users.empty()) {
      std::vector<Memory> reclaimed;
      MutexLock lock(mutex_);
      at.leaving.push_back({std::move(released.memory), std::move(released.users)});
      reclaimed = reap(at, kReapedAtOnce);
      lock.unlock();
    } else {
      released.memory.reset();
    }
  }
  at.moving.fetch_sub(1, std::memory_order_acq_rel);
  wake_waiters();
}

// ---------------------------------------------------------------- requests

Status Engine::prefetch(Block& block, NodeId id) {
  if (block.size() == Bytes(0)) return {};
  ThreadState& self = thread_state();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mutex_);
  for (;;) {
    wait_move(block);
    if (block.replica(id).word.state() != ReplicaState::absent) return {};
    if (source_of(block, id) == kNoNode) return lost_with(block);
    Status status;
    {
      const MoveScope move(*this, block);
      // Never wait for room while the block is moving: who has the room may wait for the block.
      ++self.acquiring;
      self.refused = false;
      status = bring(block, id);
      --self.acquiring;
    }
    const bool may_pass = status.code() == Code::busy || self.refused;
    if (status.ok() || !may_pass || std::chrono::steady_clock::now() > deadline) return status;
    wait_change();
  }
}

Status Engine::write_back(Block& block) {
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
      status = copy_to_backing(block, (*owner)->id, backing(**owner));
    }
    if (status.code() != Code::busy || std::chrono::steady_clock::now() > deadline) return status;
    wait_change();
  }
}

Status Engine::evict(Block& block) {
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
        status = leave(*at, block, false);
      }
      IK_RETURN_IF_ERROR(status);
      left = true;
    }
  }
  return {};
}

std::vector<NodeId> Engine::where(const Block& block) const {
  MutexLock lock(mutex_);
  std::vector<NodeId> found;
  for (const auto& at : nodes_) {
    const ReplicaState state = block.replica(at->id).word.state();
    if (!is_valid(state)) continue;
    found.insert(state == ReplicaState::owned ? found.begin() : found.end(), at->id);
  }
  return found;
}

}  // namespace innkeeper
