// Making room inside an allocation, and the accounting that says how much there is (I4, I7).
#include <algorithm>

#include "base/heap_reserve.h"
#include "base/log.h"
#include "base/test_point.h"
#include "residency/engine.h"
#include "residency/moving.h"

namespace innkeeper {
namespace {

// A peer keeps this part of its budget free for its own operators: one in kPeerReserve.
constexpr int64_t kPeerReserve = 4;

}  // namespace

bool Engine::try_charge(Node& node, Bytes size) {
  int64_t used = node.used.load(std::memory_order_relaxed);
  do {
    if (used + size.count() > node.budget.load(std::memory_order_relaxed)) return false;
  } while (!node.used.compare_exchange_weak(used, used + size.count(), std::memory_order_acq_rel));
  const int64_t now = used + size.count();
  // Well before room runs out: two kernels that wait for each other's memory cannot be told apart from one
  // that is too large, and operators that have begun are not stopped.
  if (2 * now > node.budget.load(std::memory_order_relaxed) && !node.tight.load(std::memory_order_relaxed)) {
    node.tight.store(true, std::memory_order_seq_cst);
  }
  int64_t peak = node.peak.load(std::memory_order_relaxed);
  while (peak < now && !node.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  return true;
}

// What an allocator asks for is charged to the thread's armed reservation, if it has one for the node; else,
// and where that has too little, as a kernel's.
Status Engine::charge(NodeId id, Bytes size) {
  Node& at = node(id);
  size = round_up(size);
  ArmedReservation* const armed = ArmedReservation::current();
  if (armed == nullptr || armed->reservation().node() != id) [[likely]] {
    return try_charge(at, size) ? Status() : charge_slowly(at, size, Reserve::may_wait);
  }
  const Bytes promised = armed->reservation().take(size);
  if (promised == size || try_charge(at, size - promised)) return {};
  Status status = charge_slowly(at, size - promised, armed->reservation().mode());
  if (status.ok()) return status;
  at.used.fetch_sub(promised.count(), std::memory_order_acq_rel);
  if (status.code() == Code::busy) armed->refuse();
  return status;
}

Result<Reservation> Engine::reserve(NodeId id, Bytes size, Reserve mode) {
  Node& at = node(id);
  size = round_up(size);
  if (!try_charge(at, size)) IK_RETURN_IF_ERROR(charge_slowly(at, size, mode));
  return Reservation(id, size, mode, at.used, at.promises);
}

void Engine::uncharge(NodeId id, Bytes size) noexcept {
  node(id).used.fetch_sub(round_up(size).count(), std::memory_order_acq_rel);
}

bool Engine::others_run(const Node& node) {
  const ThreadState& self = thread_state();
  return node.running.load(std::memory_order_acquire) > self.running[index_of(node.id)];
}

Status Engine::charge_slowly(Node& node, Bytes size, Reserve mode) {
  if (mode == Reserve::free_room) return Status(Code::busy, "no free room at " + node.device->name());
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  ThreadState& self = thread_state();
  MutexLock lock(mutex_);
  if (size > Bytes(node.budget.load(std::memory_order_relaxed))) {
    drain_nursery();
    return out_of_room(node, size);
  }
  look_for_room(node);
  for (;;) {
    if (try_charge(node, size)) return {};
    if (reclaim(node)) continue;
    const Bytes shortfall = Bytes(node.used.load(std::memory_order_relaxed)) + size -
                            Bytes(node.budget.load(std::memory_order_relaxed));
    if (shortfall <= Bytes(0)) continue;  // memory was given back meanwhile
    // What leaves already, once it has landed elsewhere, need not be replaced by other victims.
    std::vector<Block*> victims;
    const Bytes vacating = landing_soon(node);
    if (shortfall > vacating) victims = collect_victims(node, shortfall - vacating);
    if (!victims.empty()) {
      lock.unlock();
      if (trackers_.of_thread(self) != nullptr) {
        self.unplanned[index_of(node.id)] += shortfall.count();
      } else {
        node.unplanned.fetch_add(shortfall.count(), std::memory_order_relaxed);
      }
      if (node.kind == NodeKind::host && disk_ != kNoNode)
        node.ahead.fetch_add(shortfall.count(), std::memory_order_relaxed);
      Status status = evict_some(node, std::move(victims), shortfall - vacating, mode);
      lock.lock();
      if (!status.ok()) return status;
      continue;
    }
    if (vacating != Bytes(0)) {
      const Status landed = wait_landing(node);
      if (landed.ok() || landing_soon(node) != Bytes(0)) continue;
      return try_charge(node, size) ? Status() : landed;
    }
    if (poll_escapes()) continue;
    if (cancel_last_waiting(node)) continue;
    if (wait_leaving(node)) continue;
    const bool moves = others_move(node);
    if (try_charge(node, size)) return {};  // who moved may have been through just before we looked
    if (!others_run(node) && !moves) return out_of_room(node, size);
    if (mode == Reserve::may_evict)
      return Status(Code::busy, "other operators hold the room at " + node.device->name());
    // A kernel must wait where it is: it may have written already (I9). If every operator here waits like
    // this, no thread will make room.
    const int running = self.running[index_of(node.id)];
    if (!moves && node.stuck + running >= node.running.load(std::memory_order_acquire))
      return out_of_room(node, size);
    wait_for_room(node);
  }
}

// Is another thread moving something to, from or at this node, or does a new result end here? It may leave
// room.
bool Engine::others_move(const Node& node) const {
  const ThreadState& self = thread_state();
  if (node.moving > self.moving[index_of(node.id)] || nursery_.any_dying(node.id)) return true;
  return std::any_of(moving_.begin(), moving_.end(), [&](const Block* block) {
    return block->mover_ != &self && block->replica(node.id).listed;
  });
}

// While it waits a thread makes no room: neither its operators here nor what it is moving here count.
void Engine::wait_for_room(Node& node) {
  const ThreadState& self = thread_state();
  const int running = self.running[index_of(node.id)];
  const int moving = self.moving[index_of(node.id)];
  node.stuck += running;
  node.moving -= moving;
  wait_change();
  node.stuck -= running;
  node.moving += moving;
}

// Waits for the copies that still touch the memory that left first, if any did.
bool Engine::wait_leaving(Node& node) {
  if (node.leaving.empty()) return false;
  const std::vector<Event> pending = node.leaving.front().users;
  mutex_.unlock();
  for (const Event& event : pending) (void)event->synchronize();
  mutex_.lock();
  return true;
}

// Takes parked memory whose last copy is done, of at most so many entries, the first that were parked; those
// that a copy still touches go to the back. The caller gives it back without the lock.
std::vector<Memory> Engine::reap(Node& node, size_t entries) {
  std::vector<Memory> done;
  for (size_t looks = std::min(entries, node.leaving.size()); looks > 0; --looks) {
    Leaving entry = std::move(node.leaving.front());
    node.leaving.pop_front();
    std::erase_if(entry.users, [](const Event& event) { return is_done(event); });
    if (entry.users.empty()) {
      done.push_back(std::move(entry.memory));
    } else {
      node.leaving.push_back(std::move(entry));
    }
  }
  return done;
}

// Gives back all host memory whose last copy is done. Returns whether there was any.
bool Engine::reclaim(Node& node) {
  std::vector<Memory> done = reap(node, SIZE_MAX);
  if (done.empty()) return false;
  begin_release(node);  // others who need room wait for it
  mutex_.unlock();
  done.clear();
  mutex_.lock();
  node.moving.fetch_sub(1, std::memory_order_acq_rel);
  changed_.notify_all();
  return true;
}

bool Engine::poll_escapes() {
  if (escaped_.empty() || !probe_) return false;
  const size_t freed = std::erase_if(escaped_, [this](const auto& entry) {
    Replica& replica = entry.first->replica(entry.second);
    if (probe_(*entry.first, entry.second)) return false;
    --replica.escapes;
    touched(replica);  // Its last user did.
    count_write(*entry.first);
    replica.word.remove_pin(false);
    return true;
  });
  return freed != 0;
}

bool Engine::take_as_victim(Block& block, NodeId id) {
  if (is_moving(block) || !block.replica(id).word.close_if_unpinned()) return false;
  begin_move(block);
  return true;
}

// `most`: of a block that must be written below.
std::vector<Block*> Engine::collect_victims(Node& node, Bytes shortfall, Bytes most) {
  if (backing(node) == kNoNode) most = Bytes(-1);
  std::vector<Block*> victims;
  std::vector<Block*> arriving;  // the program asked for them: they go last
  std::vector<Block*> staying;
  Bytes found{0};
  const auto take = [&](Block* block) IK_REQUIRES(mutex_) {
    if (found < shortfall && take_as_victim(*block, node.id)) {
      victims.push_back(block);
      found += round_up(block->replica(node.id).memory.size());
    } else {
      staying.push_back(block);
    }
  };
  while (found < shortfall) {
    Block* const block = node.index->pop(Bytes(node.budget.load(std::memory_order_relaxed)));
    if (block == nullptr) break;
    const ReplicaState state = block->replica(node.id).word.state();
    if (state == ReplicaState::arriving) {
      // What leaves for a disk leaves room elsewhere, for which an operator waits.
      (node.kind == NodeKind::disk ? staying : arriving).push_back(block);
    } else if (state == ReplicaState::owned && block->size() > most) {
      staying.push_back(block);
    } else {
      take(block);
    }
  }
  for (Block* block : arriving) take(block);
  const Stamp now = now_.load(std::memory_order_relaxed);
  for (Block* block : staying) node.index->add_as_used(*block, now);
  return victims;
}

// Evicts some of these, or other victims for so many bytes: what finds no room below stays, and smaller ones
// go, or those that need none.
Status Engine::evict_some(Node& node, std::vector<Block*> victims, Bytes size, Reserve room) {
  Status first;
  while (!victims.empty()) {
    Bytes least{INT64_MAX};
    for (const Block* block : victims) least = std::min(least, block->size());
    const Status status = evict_victims(node, std::move(victims), true, room);
    if (status.ok() || status.code() != Code::out_of_memory || backing(node) == kNoNode) return status;
    if (first.ok()) first = status;
    MutexLock lock(mutex_);
    victims = collect_victims(node, size, std::min(least - Bytes(1), free(backing(node))));
  }
  return first;
}

// Spares go first. They need no room elsewhere; the others may have to wait for it, and must not hold up
// meanwhile who waits at the node where a spare's other replica is.
Status Engine::evict_victims(Node& node, std::vector<Block*> victims, bool peers, Reserve room) {
  std::stable_partition(victims.begin(), victims.end(), [&node](const Block* block) {
    return block->replica(node.id).word.state() != ReplicaState::owned;
  });
  const Moving moving(*this, node);
  struct Moves {  // those that have not ended, whatever happens
    ~Moves() {
      MutexLock lock(engine.mutex_);
      for (Block* block : left) engine.end_move(*block);
    }
    Engine& engine;
    std::span<Block*> left;
  } moves{*this, victims};
  Status failure;
  bool any = false;
  for (Block* block : victims) {
    reach("victim");
    Status status = leave(node, *block, peers, room);
    MutexLock lock(mutex_);
    end_move(*block);
    moves.left = moves.left.subspan(1);
    if (status.ok()) {
      any = true;
    } else if (failure.ok()) {
      failure = status;
    }
  }
  return any ? Status() : failure;
}

// One replica gives up its place: a spare is dropped, the owner's bytes are copied elsewhere first (I1).
// The replica is closed and the block moving. What goes to a disk is still here afterwards, and vacating: a
// disk may be full or fail, so its bytes must be safe before the source goes (I7).
Status Engine::leave(Node& node, Block& block, bool peers, Reserve room) {
  Replica& replica = block.replica(node.id);
  if (replica.word.state() == ReplicaState::shared && source_of(block, node.id) == kNoNode) {
    // Its only other copies are arriving, from here: they must be there first (I1).
    for (const auto& at : nodes_) {
      if (block.replica(at->id).word.state() != ReplicaState::arriving) continue;
      Status arrived = finish_arrival(block, at->id);
      if (arrived.ok()) break;
    }
  }
  if (source_of(block, node.id) == kNoNode && replica.word.state() != ReplicaState::arriving) {
    Status copied = peers ? copy_to_peer(block, node) : Status(Code::busy, "");
    const NodeId to = backing(node);
    if (!copied.ok() && to == kNoNode) {
      copied = Status(Code::out_of_memory, "there is no node below " + node.device->name());
    } else if (!copied.ok()) {
      copied = start_move(block, node.id, to, {room, Priority::demand}, /*leaves=*/true);
    }
    if (!copied.ok()) {
      reopen(replica);
      return copied;
    }
    if (replica.vacating) {
      reopen(replica);  // who reads it meanwhile need not wait
      return {};
    }
  }
  vacate(node, block);
  return {};
}

// The last step of leaving: the bytes are safe elsewhere, or not needed.
void Engine::vacate(Node& node, Block& block) {
  drop_replica(block, node.id);
  if (log_enabled(LogLevel::info)) {
    log(LogLevel::info, "evict block " + std::to_string(static_cast<uint64_t>(block.id())) + " (" +
                            to_string(block.size()) + ") from " + node.device->name());
  }
  if (backing(node) != kNoNode && may_plan_.load(std::memory_order_relaxed))
    follows_.store(true, std::memory_order_relaxed);
  node.evictions.fetch_add(1, std::memory_order_relaxed);
  evictions_.fetch_add(1, std::memory_order_relaxed);
}

// A GPU that has plenty of room takes what must leave another one: that link is faster than the host's, and
// the memory of all GPUs counts. It takes free room only; evicting there could go round in circles. Where
// another program works, what is free now is wanted soon.
Status Engine::copy_to_peer(Block& block, const Node& from) {
  if (from.kind != NodeKind::accelerator) return Status(Code::busy, "");
  const ThreadState& self = thread_state();
  const Node* best = nullptr;
  for (const NodeId id : computing_) {
    const Node& peer = node(id);
    const Bytes left = free(id) - block.size();
    if (id == from.id || left.count() < peer.budget.load(std::memory_order_relaxed) / kPeerReserve) continue;
    if (trackers_.others_at(id, self, now_.load(std::memory_order_relaxed))) continue;
    if (!peer.device->can_copy_from(*from.device)) continue;
    if (best == nullptr || free(id) > free(best->id)) best = &peer;
  }
  if (best == nullptr) return Status(Code::busy, "");
  return start_move(block, from.id, best->id, {Reserve::free_room, Priority::demand}, /*leaves=*/true);
}

Status Engine::evict_all() {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  for (const auto& at : nodes_) {
    if (at->kind == NodeKind::disk || backing(*at) == kNoNode) continue;
    std::vector<Block*> victims;
    {
      MutexLock lock(mutex_);
      poll_escapes();
      drain_nursery();
      victims = collect_victims(*at, Bytes(INT64_MAX));
    }
    if (!victims.empty())
      IK_RETURN_IF_ERROR(evict_victims(*at, std::move(victims), false, Reserve::may_wait));
    MutexLock lock(mutex_);
    while (landing_soon(*at) != Bytes(0)) IK_RETURN_IF_ERROR(wait_landing(*at));
  }
  return {};
}

Status Engine::set_budget(NodeId id, Bytes wanted) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  Node& at = node(id);
  if (wanted <= Bytes(0)) return Status(Code::invalid_argument, "a budget is a positive number of bytes");
  if (wanted < budget(id)) recompute_while_there_is_room();
  MutexLock lock(mutex_);
  const int64_t before = at.budget.exchange(wanted.count());
  for (;;) {
    const Bytes excess = Bytes(at.used.load()) - wanted;
    if (excess <= Bytes(0)) {
      at.device->set_limit(wanted);
      return {};
    }
    drain_nursery();
    if (reclaim(at) || poll_escapes()) continue;
    std::vector<Block*> victims;
    const Bytes vacating = landing_soon(at);
    if (excess > vacating) victims = collect_victims(at, excess - vacating);
    Status status;
    if (victims.empty()) {
      if (vacating != Bytes(0)) {
        status = wait_landing(at);
        if (status.ok()) continue;
        at.budget.store(before);
        return status;
      }
      if (cancel_last_waiting(at) || wait_leaving(at)) continue;
      if (others_move(at)) {
        wait_change();
        continue;
      }
      if (at.used.load() <= wanted.count()) continue;  // as in charge_slowly
      status = Status(Code::out_of_memory, "a budget of " + to_string(wanted) + " for " + at.device->name() +
                                               " is less than the " + to_string(Bytes(at.used.load())) +
                                               " in use there that cannot leave now (" +
                                               to_string(pinned_bytes(at)) + " pinned)");
    } else {
      lock.unlock();
      status = evict_some(at, std::move(victims), excess - vacating, Reserve::may_wait);
      lock.lock();
    }
    if (!status.ok()) {
      at.budget.store(before);
      return status;
    }
  }
}

Status Engine::relieve(NodeId id, Bytes size) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  Node& at = node(id);
  MutexLock lock(mutex_);
  for (;;) {
    if (reclaim(at)) return {};
    drain_nursery();
    std::vector<Block*> victims = collect_victims(at, size);
    if (!victims.empty()) {
      lock.unlock();
      IK_RETURN_IF_ERROR(evict_some(at, std::move(victims), size, Reserve::may_wait));
      lock.lock();
      return landing_soon(at) != Bytes(0) ? wait_landing(at) : Status();
    }
    if (landing_soon(at) != Bytes(0)) return wait_landing(at);
    if (poll_escapes()) continue;
    return wait_leaving(at) ? Status() : out_of_room(at, size);
  }
}

Bytes Engine::pinned_bytes(const Node& node) const {
  Bytes pinned{0};
  for (Block* block = node.first; block != nullptr; block = block->replica(node.id).next) {
    const Replica& replica = block->replica(node.id);
    if (replica.user_pins != 0 || replica.escapes != 0) pinned += replica.memory.size();
  }
  return pinned;
}

Status Engine::out_of_room(const Node& node, Bytes size) const {
  Bytes in_use{0};
  for (Block* block = node.first; block != nullptr; block = block->replica(node.id).next) {
    if (block->replica(node.id).word.pins() != 0) in_use += block->replica(node.id).memory.size();
  }
  const Bytes used(node.used.load());
  const Bytes kernel = used - node.replica_bytes;
  std::string message = node.device->name() + " is out of memory. " + to_string(size) + " asked, " +
                        to_string(used) + " of its budget of " + to_string(Bytes(node.budget.load())) +
                        " in use (" + to_string(in_use) + " by operands and pins, of which " +
                        to_string(pinned_bytes(node)) + " pinned by the user or escaped; " +
                        to_string(kernel) + " by kernels themselves)";
  const Bytes may_leave = node.replica_bytes - in_use;
  const Bytes free(node.budget.load() - used.count());
  if (backing(node) == kNoNode && node.kind != NodeKind::disk && may_leave != Bytes(0) &&
      free + may_leave >= size) {
    message += "; nothing below " + node.device->name() +
               " can take what is here: add a disk node to INNKEEPER_NODES";
  }
  message += "; a larger budget for " + node.device->name() + " in INNKEEPER_NODES or configure() would help";
  if (pinned_bytes(node) != Bytes(0)) message += ", and unpinning";
  return Status(Code::out_of_memory, std::move(message));
}

}  // namespace innkeeper
