// Copies between nodes. Everything here runs without the engine's lock (I10), on a block that this thread has
// marked as moving, so no other thread changes its replicas; valid replicas may be pinned and read meanwhile.
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
Stamp Engine::touched(Replica& replica) {
  const Stamp stamp = next_stamp();
  replica.last_use.store(stamp, std::memory_order_relaxed);
  replica.last_write.store(stamp, std::memory_order_relaxed);
  return stamp;
}

// The failure for a block without a readable replica; ok if it has none at all: it was never written.
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
// since, and the copy into it if that is under way. Escaped memory may be written from outside at any time.
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

// Queues a copy of the next `size` bytes of a move. One end is host memory, or both are accelerators that
// reach each other. With `follows` the bytes before came by the same queue; else that queue comes after
// what fills the source, and after the copies so far, so that the last one stands for all.
Result<Event> Engine::queue_copy(const Move& move, Bytes size, bool follows) {
  const Block& block = *move.block;
  Device& target = device(move.to);
  Device& origin = device(move.from);
  const auto at = [&](void* data) -> void* { return static_cast<std::byte*>(data) + move.begun.count(); };
  void* const memory = at(block.replica(move.to).memory.data());
  void* const source = at(block.replica(move.from).memory.data());
  const auto order = [&](Device& runner, Queue queue) -> Status {
    if (follows) return {};
    IK_RETURN_IF_ERROR(order_copy(runner, queue, block, move.from));
    return move.last == nullptr ? Status() : runner.wait(queue, move.last);
  };
  const NodeKind target_kind = target.kind();
  const NodeKind origin_kind = origin.kind();
  Result<Event> copied = Event();
  if (target_kind == NodeKind::accelerator && origin_kind == NodeKind::accelerator) {
    IK_RETURN_IF_ERROR(order(target, Queue::copy_in));
    copied = target.copy_peer(memory, origin, source, size);
  } else if (origin_kind == NodeKind::host) {
    IK_RETURN_IF_ERROR(order(target, Queue::copy_in));
    copied = target.copy_in(memory, source, size);
  } else {
    IK_CHECK(target_kind == NodeKind::host, "a copy has the host at one end");
    IK_RETURN_IF_ERROR(order(origin, Queue::copy_out));
    copied = origin.copy_out(memory, source, size);
  }
  if (!copied.ok()) return copied;
  bytes_copied(copy_kind(origin_kind, target_kind)).fetch_add(size.count(), std::memory_order_relaxed);
  if (origin_kind == NodeKind::disk) bytes_from_disk_.fetch_add(size.count(), std::memory_order_relaxed);
  if (target_kind == NodeKind::disk) bytes_to_disk_.fetch_add(size.count(), std::memory_order_relaxed);
  return copied;
}

std::atomic<int64_t>& Engine::bytes_copied(CopyKind kind) {
  if (kind == CopyKind::between) return bytes_between_;
  return kind == CopyKind::fetch ? bytes_fetched_ : bytes_written_back_;
}

Result<Event> Engine::watched_copy(const Move& move, Bytes size, bool follows) {
  if (!watch_) return queue_copy(move, size, follows);
  Result<Event> copied = Event();
  const auto copy = [&] { copied = queue_copy(move, size, follows); };
  watch_(device(move.from), device(move.to), size, std::cref(copy));  // by reference: no memory for each copy
  return copied;
}

// Orders the node's compute queue after the copies that fill the replica, all of which are asked for now;
// then operators may read it.
Status Engine::finish_arrival(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  if (replica.word.state() != ReplicaState::arriving) return {};  // it was born, not copied
  const MovePtr move = replica.copies.shared_move();
  if (!is_all_issued(*move)) {
    IK_RETURN_IF_ERROR(issue(*move, Parts::all));
    if (replica.word.state() != ReplicaState::arriving) return {};
  }
  if (const Event into = replica.copies.into(); into != nullptr) {
    Status ordered = device(id).wait(Queue::compute, into);
    if (!ordered.ok()) return fail(*move, ordered);
  }
  replica.copies.clear_into();
  touched(replica);
  MutexLock lock(mutex_);
  finish_move(block, id);
  transition(replica, ReplicaEvent::fetch_end);
  return {};
}

// Lets operators pin a valid replica again that was closed because copies were under way: into it (a host
// replica just written back), or out of it (the owner: a kernel must not overwrite what a copy still reads).
Status Engine::open_replica(Block& block, NodeId id) {
  Replica& replica = block.replica(id);
  for (const Event& copy : replica.copies.out()) IK_RETURN_IF_ERROR(device(id).wait(Queue::compute, copy));
  if (!replica.copies.out().empty()) replica.last_use.store(next_stamp(), std::memory_order_relaxed);
  if (const Event into = replica.copies.into(); into != nullptr) {
    IK_RETURN_IF_ERROR(device(id).wait(Queue::compute, into));
    touched(replica);
  }
  replica.copies.clear();
  replica.word.open();
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
  }
  reach("dropped");
  release_memory(std::move(dropped), /*soon=*/true);
}

Engine::Released Engine::begin_release(Block& block, NodeId id, ReplicaEvent event) {
  begin_release(node(id));
  return detach(block, id, event);
}

// The replica is absent from now on, whatever was on its way into it or was to follow.
Engine::Released Engine::detach(Block& block, NodeId id, ReplicaEvent event) {
  Replica& replica = block.replica(id);
  unlist(block, id);
  cancel_vacate(block, id);
  finish_move(block, id);
  transition(replica, event);
  return {id, std::move(replica.memory), replica.copies.take(),
          replica.last_use.load(std::memory_order_relaxed)};
}

void Engine::begin_release(Node& node) { ++node.moving; }

// Gives an accelerator's memory back with its users (I5, I6), so that only who is given it waits for them,
// and no longer than needed. What just dies goes in the order of the compute queue.
void Engine::give_back(Node& node, Released released, bool soon) {
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

}  // namespace innkeeper
