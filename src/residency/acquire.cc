// Bringing operands together and pinning them.
#include <algorithm>

#include "base/heap_reserve.h"
#include "base/test_point.h"
#include "residency/engine.h"
#include "residency/moving.h"
#include "residency/operator_scope.h"
#include "trace/stream.h"

namespace innkeeper {

Status Engine::acquire(NodeId id, std::span<Access> accesses) {
  if (device(id).is_lost()) [[unlikely]] {
    for (const Access& access : accesses) IK_RETURN_IF_ERROR(check_not_lost(*access.block));
    return device(id).loss();
  }
  bool complete = true;
  for (Access& access : accesses) {
    access.pinned = access.block->replica(id).word.try_pin(access.write);
    complete = complete && access.pinned;
  }
  if (complete) [[likely]]
    return {};

  if (disk_ != kNoNode) {
    for (const Access& access : accesses) {
      if (!access.pinned && access.block->replica(disk_).word.state() != ReplicaState::absent)
        start_disk_read(*access.block, id);
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
    // Never wait while holding pins: the one who is waited for may need just these bytes.
    let_pins_go(id, accesses);
    reach("released");
    const bool may_pass =
        failure.code() == Code::busy || (failure.code() == Code::out_of_memory && others_run(node(id)));
    if (!may_pass || std::chrono::steady_clock::now() > deadline) return failure;
    MutexLock lock(mutex_);
    // Holding nothing, it makes no room for a kernel that waits: that one need not wait for it.
    wait_for_room(node(id));
  }
}

Status gather(Engine& engine, NodeId node, std::span<Access> accesses, Bytes operands,
              std::optional<OperatorScope>& scope) {
  for (;;) {
    scope.reset();  // one at another node must not be open
    scope.emplace(engine, node, operands);
    IK_RETURN_IF_ERROR(heap_reserve_ready());
    Status status;
    {
      const NeedsHeap books;
      status = engine.acquire(node, accesses);
    }
    if (status.code() != Code::dropped) [[likely]]
      return status;
    scope.reset();
    IK_RETURN_IF_ERROR(engine.recompute(accesses));
  }
}

// The operator's kernels are on the compute queue by now, so its stamp covers them; it is there before the
// pin goes, for the next thread that moves the block.
void Engine::let_pins_go(NodeId id, std::span<Access> accesses) {
  const Stamp stamp = next_stamp();
  Bytes written{0};
  for (Access& access : accesses) {
    if (!access.pinned) continue;
    access.pinned = false;
    Replica& replica = access.block->replica(id);
    replica.last_use.store(stamp, std::memory_order_relaxed);
    if (access.write || access.born) replica.last_write.store(stamp, std::memory_order_relaxed);
    if (access.write) {
      written += access.block->size();
      count_write(*access.block);
    }
    replica.word.remove_pin(access.write);
  }
  if (Stamps* const stamps = node(id).stamps.get()) stamps->launched(written);
  wake_waiters();
}

void Engine::release(NodeId id, std::span<Access> accesses, const trace::Operation& what) {
  {
    const NeedsHeap books;
    let_pins_go(id, accesses);
    advance();
    if (node(id).ahead.load(std::memory_order_relaxed) > 0) [[unlikely]]
      write_back_ahead(node(id));
  }
  if (!is_heard()) [[likely]]
    return;
  if (thread_state().recomputing != 0) return;
  const trace::Event told = stream_->operation(what, id, accesses.size(), [accesses](size_t index) {
    using Kind = trace::AccessKind;
    const Access& access = accesses[index];
    const Kind made = access.pure ? Kind::pure : Kind::born;
    const Kind kind = access.born ? made : access.write ? Kind::write : Kind::read;
    return trace::RecordedAccess{access.block->id(), access.block->size(), kind};
  });
  if (follows_.load(std::memory_order_relaxed)) follow_if_memory_allows(id, told.accesses, accesses);
}

Status Engine::pin_async(NodeId id, std::span<Access> accesses) {
  for (Status status = acquire(id, accesses); !status.ok(); status = acquire(id, accesses)) {
    if (status.code() != Code::dropped) return status;
    IK_RETURN_IF_ERROR(recompute(accesses));
  }
  MutexLock lock(mutex_);
  ++node(id).moving;
  return {};
}

void Engine::take_back(NodeId id, std::span<Access> accesses) {
  release(id, accesses);
  MutexLock lock(mutex_);
  --node(id).moving;
  changed_.notify_all();
}

// Pins a valid replica that is closed because of copies under way, for work that need not come after them.
// A reader need not wait for copies out of the replica; the queue of a ProgramCopy waits for all by itself.
bool Engine::pin_closed(Replica& replica, const Access& access) {
  const ReplicaState state = replica.word.state();
  if (!is_valid(state) || (access.write && state != ReplicaState::owned)) return false;
  if (access.queue == Queue::compute && (access.write || replica.copies.into() != nullptr)) return false;
  replica.copies.forget_done();
  replica.word.add_pin(access.write);
  reopen(replica);
  return true;
}

Status Engine::pin_slow(const Access& access, NodeId id) {
  Block& block = *access.block;
  const bool write = access.write;
  Replica& replica = block.replica(id);
  MutexLock lock(mutex_);
  for (;;) {
    if (replica.word.try_pin(write)) return {};
    if (is_moving(block)) return Status(Code::busy, "the block is being moved by another thread");
    if (pin_closed(replica, access)) return {};
    const ReplicaState state = replica.word.state();
    if (state == ReplicaState::shared && write && !replica.word.is_closed()) {
      IK_RETURN_IF_ERROR(make_exclusive(block, id));
      replica.word.add_pin(write);
      return {};
    }
    Status status;
    {
      const MoveScope move(*this, block);
      reach("settle");
      if (state == ReplicaState::absent) {
        MoveIntent intent = kDemand;
        intent.first = access.queue;
        status = fetch(block, id, intent);
      } else if (state == ReplicaState::arriving) {
        status = finish_arrival(block, id);
      } else {
        status = open_replica(block, id);
      }
    }
    if (!status.ok()) return status;
  }
}

// I2: before an operator writes, every other valid replica goes. The lock is let go meanwhile.
Status Engine::make_exclusive(Block& block, NodeId id) {
  if (made_of_.contains(&block)) [[unlikely]]
    return Status(Code::dropped, "what was made of the block must be computed before it is written");
  std::array<NodeId, kMaxNodes> others;
  size_t count = 0;
  Status failure;
  for (const auto& at : nodes_) {
    Replica& replica = block.replica(at->id);
    if (at->id == id || replica.word.state() == ReplicaState::absent) continue;
    if (replica.escapes != 0) poll_escapes();
    if (!replica.word.close_if_unpinned()) {
      failure = pinned(block, *at, " and cannot be written at " + node(id).device->name());
      break;
    }
    others[count++] = at->id;
  }
  if (!failure.ok()) {
    for (size_t i = 0; i < count; ++i) reopen(block.replica(others[i]));
    return failure;
  }
  {
    const MoveScope move(*this, block);
    for (size_t i = 0; i < count; ++i) drop_replica(block, others[i]);
    failure = open_replica(block, id);
  }
  if (failure.ok()) transition(block.replica(id), ReplicaEvent::write);
  return failure;
}

// Does this thread work on the replica itself (hold)? Then waiting for it would be waiting for oneself.
bool Engine::held_by_me(const Block& block, NodeId id) const {
  return std::any_of(holds_.begin(), holds_.end(), [&](const Hold& hold) {
    return hold.block == &block && hold.node == id && hold.thread == &thread_state();
  });
}

// Why a pinned replica cannot leave: told at once where waiting would not help, since all its pins last until
// the program does something about them, this thread among others.
Status Engine::pinned(const Block& block, const Node& at, const std::string& consequence) const {
  const Replica& replica = block.replica(at.id);
  const std::string at_node = " at " + at.device->name();
  const std::string where = at_node + consequence;
  const auto lasting = [](const std::string& line) { return Status(Code::invalid_argument, line); };
  if (held_by_me(block, at.id)) {
    return lasting("this thread works on the block itself" + where + "; leave innkeeper.resident() first");
  }
  if (replica.user_pins != 0) return lasting("the block is pinned" + where + "; unpin it first");
  if (replica.escapes != 0 && replica.word.pins() == replica.escapes) {
    return lasting("the block's real memory" + at_node +
                   " is still held by somebody whom an operator or resident() lent it" + consequence +
                   "; let go of it first");
  }
  return Status(Code::busy, "the block is in use" + where);
}

// Why a replica that is written cannot be copied from.
Status Engine::written(const Block& block, const Node& at) const {
  const std::string where = " at " + at.device->name();
  if (!held_by_me(block, at.id)) return Status(Code::busy, "the block is being written" + where);
  return Status(Code::invalid_argument, "this thread writes the block itself" + where +
                                            ", so it cannot be copied; leave innkeeper.resident() first");
}

// ---------------------------------------------------------------- pins of users, and escapes

Status Engine::pin(Block& block, NodeId id) {
  recompute_while_there_is_room();
  Access access{.block = &block};
  std::optional<OperatorScope> scope;
  IK_RETURN_IF_ERROR(gather(*this, id, std::span(&access, 1), block.size(), scope));
  const NeedsHeap books;
  MutexLock lock(mutex_);
  leave_nursery(block);
  Replica& replica = block.replica(id);
  const Bytes size = replica.user_pins == 0 ? round_up(replica.memory.size()) : Bytes(0);
  ++replica.user_pins;
  if (id == host_) pinned_to_host_.store(true, std::memory_order_relaxed);
  pinned_at_[&block].push_back({id, size});
  node(id).pinned_by_user += size;
  return {};
}

void Engine::unpin(Block& block) {
  {
    MutexLock lock(mutex_);
    const auto found = pinned_at_.find(&block);
    if (found == pinned_at_.end()) return;
    const Pin pin = found->second.back();
    Replica& replica = block.replica(pin.node);
    VictimIndex& at = *node(pin.node).index;
    node(pin.node).pinned_by_user -= pin.size;
    found->second.pop_back();
    if (found->second.empty()) pinned_at_.erase(found);
    --replica.user_pins;
    replica.word.remove_pin(false);
    if (at.contains(block)) {  // it was passed over, as if it were used
      at.remove(block);
      at.add(block);
    }
  }
  wake_waiters();
}

// The block dies.
void Engine::forget_pins(const Block& block) {
  const auto found = pinned_at_.find(&block);
  if (found == pinned_at_.end()) return;
  for (const Pin& pin : found->second) node(pin.node).pinned_by_user -= pin.size;
  pinned_at_.erase(found);
}

bool Engine::is_pinned(const Block& block) const {
  MutexLock lock(mutex_);
  return pinned_at_.contains(&block);
}

Status Engine::hold(Block& block, NodeId id, bool write) {
  Access access{.block = &block, .write = write};
  std::optional<OperatorScope> scope;
  IK_RETURN_IF_ERROR(gather(*this, id, std::span(&access, 1), block.size(), scope));
  const NeedsHeap books;
  MutexLock lock(mutex_);
  leave_nursery(block);
  holds_.push_back({&block, id, write, &thread_state()});
  return {};
}

Access Engine::let_go(Block& block, NodeId id) {
  MutexLock lock(mutex_);
  const auto mine = [&](const Hold& hold) { return hold.block == &block && hold.node == id; };
  auto found = std::find_if(holds_.rbegin(), holds_.rend(),
                            [&](const Hold& hold) { return mine(hold) && hold.thread == &thread_state(); });
  // A context may be left on another thread than it was entered on.
  if (found == holds_.rend()) found = std::find_if(holds_.rbegin(), holds_.rend(), mine);
  IK_CHECK(found != holds_.rend(), "let_go without hold");
  const Access access{.block = &block, .write = found->write, .pinned = true};
  holds_.erase(std::next(found).base());
  return access;
}

void Engine::keep_escaped(NodeId id, Access& access) {
  if (!access.pinned) return;
  const NeedsHeap books;
  access.pinned = false;  // the pin stays, and belongs to the escape now
  MutexLock lock(mutex_);
  leave_nursery(*access.block);
  Replica& replica = access.block->replica(id);
  if (replica.escapes != 0) {
    replica.word.remove_pin(access.write);  // one pin is enough for as long as it lasts
    return;
  }
  if (access.write) {
    replica.word.end_write();
    count_write(*access.block);
  }
  ++replica.escapes;
  escaped_.emplace_back(access.block, id);
}

}  // namespace innkeeper
