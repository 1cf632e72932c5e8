#include "residency/engine.h"

#include <algorithm>
#include <utility>

#include "base/heap_reserve.h"
#include "base/test_point.h"
#include "residency/moving.h"
#include "residency/operator_scope.h"
#include "trace/stream.h"

namespace innkeeper {

Engine::Engine(std::vector<NodeSetup> nodes, std::unique_ptr<EvictionPolicy> policy)
    : policy_(std::move(policy)), stream_(std::make_shared<trace::Stream>()) {
  IK_CHECK(nodes.size() <= kMaxNodes);
  for (NodeSetup& spec : nodes) {
    auto added = std::make_unique<Node>();
    added->id = NodeId{static_cast<uint8_t>(nodes_.size())};
    added->kind = spec.device->kind();
    added->computes = spec.computes;
    added->set_speed(spec.speed);
    added->time = std::move(spec.time);
    added->budget = spec.budget.count();
    added->device = std::move(spec.device);
    added->device->attach(added->id, this);
    added->device->set_limit(spec.budget);
    added->index = std::make_unique<VictimIndex>(added->id, *policy_, now_);
    if (added->kind == NodeKind::accelerator) added->stamps = std::make_unique<Stamps>(*added->device, now_);
    if (added->computes) computing_.push_back(added->id);
    if (added->kind == NodeKind::host) host_ = added->id;
    if (added->kind == NodeKind::disk) disk_ = added->id;
    nodes_.push_back(std::move(added));
  }
  IK_CHECK(host_ != kNoNode, "a machine has a host node");
}

Engine::~Engine() {
  stop_helper();
  // Host memory that copies still touch goes back once they are done.
  for (auto& node : nodes_) (void)node->device->synchronize();
  for (auto& node : nodes_) {
    std::deque<Leaving> leaving;
    MutexLock lock(mutex_);
    leaving.swap(node->leaving);
    lock.unlock();
  }
}

// ---------------------------------------------------------------- nodes

NodeId Engine::find_node(const std::string& name) const {
  for (const auto& node : nodes_) {
    if (node->device->name() == name) return node->id;
  }
  return kNoNode;
}

Bytes Engine::room(NodeId id) const {
  MutexLock lock(mutex_);
  return budget(id) - pinned_bytes(node(id));
}

NodeId Engine::place(std::span<const Access> accesses, NodeId home) const {
  if (pinned_to_host_.load(std::memory_order_relaxed)) [[unlikely]] {
    const bool stays = std::any_of(accesses.begin(), accesses.end(), [this](const Access& access) {
      return access.write && access.block->replica(host_).user_pins != 0;
    });
    if (stays) return host_;
  }
  if (computing_.size() == 1) return computing_.front();
  std::array<NodeView, kMaxNodes> views;
  size_t count = 0;
  Bytes operands{0};
  bool all_replicated = true;
  for (const Access& access : accesses) {
    operands += access.block->size();
    all_replicated = all_replicated && access.block->replicated.load(std::memory_order_relaxed);
  }
  const bool any_works =
      std::any_of(computing_.begin(), computing_.end(), [this](NodeId id) { return !device(id).is_lost(); });
  for (NodeId id : computing_) {
    if (any_works && device(id).is_lost()) continue;
    NodeView view{.node = id, .free = free(id), .budget = budget(id)};
    for (const Access& access : accesses) {
      const Replica& replica = access.block->replica(id);
      const bool counts = all_replicated || !access.block->replicated.load(std::memory_order_relaxed);
      // Bytes on their way here count too: the program has prefetched them.
      if (counts && replica.word.state() != ReplicaState::absent) view.operand_bytes += access.block->size();
      if (replica.user_pins != 0 || replica.escapes != 0) view.required = true;
    }
    views[count++] = view;
  }
  return choose_node(std::span(views.data(), count), operands, home);
}

// ---------------------------------------------------------------- state

void Engine::transition(Replica& replica, ReplicaEvent event) {
  const ReplicaState before = replica.word.state();
  const uint8_t after = next_state(before, event);
  IK_CHECK(after != kIllegal,
           std::string("a replica that is ") + to_string(before) + " cannot " + to_string(event));
  replica.word.set_state(static_cast<ReplicaState>(after));
}

void Engine::link(Block& block, NodeId id) {
  Node& at = node(id);
  Replica& replica = block.replica(id);
  IK_CHECK(!replica.listed);
  replica.listed = true;
  replica.previous = nullptr;
  replica.next = at.first;
  if (at.first != nullptr) at.first->replica(id).previous = &block;
  at.first = &block;
  at.replica_bytes += replica.memory.size();
}

void Engine::list(Block& block, NodeId id) {
  link(block, id);
  if (block.replica(id).memory) node(id).index->came(block);
}

void Engine::unlist(Block& block, NodeId id) {
  Node& at = node(id);
  Replica& replica = block.replica(id);
  IK_CHECK(replica.listed);
  replica.listed = false;
  at.index->left(block);
  if (replica.previous != nullptr) {
    replica.previous->replica(id).next = replica.next;
  } else {
    at.first = replica.next;
  }
  if (replica.next != nullptr) replica.next->replica(id).previous = replica.previous;
  replica.previous = replica.next = nullptr;
  at.replica_bytes -= replica.memory.size();
}

// It came when it was born.
void Engine::list_new(Block& block) {
  const NodeId id = any_replica(block);
  link(block, id);
  if (block.replica(id).memory) node(id).index->add(block);
}

void Engine::drain_nursery() {
  std::array<Block*, Nursery::kPlaces> taken;
  const size_t count = nursery_.take_all(taken);
  for (size_t i = 0; i < count; ++i) list_new(*taken[i]);
}

void Engine::leave_nursery(Block& block) {
  if (nursery_.take(block)) list_new(block);
}

// A thread must see every block before it reports that a node has no free space: from here on a block that is
// born at the node waits for the lock before its operator ends (adopt).
void Engine::look_for_room(Node& node) {
  node.tight.store(true, std::memory_order_seq_cst);
  drain_nursery();
}

void Engine::begin_move(Block& block) {
  IK_CHECK(!is_moving(block));
  leave_nursery(block);
  block.mover_ = &thread_state();
  block.moving_place_ = moving_.size();
  moving_.push_back(&block);
}

void Engine::end_move(Block& block) {
  IK_CHECK(block.mover_ == &thread_state());
  block.mover_ = nullptr;
  forget_move(block);
  // Others may have left, a copy out of the last one may have failed, and what was dropped of the block may
  // have come back (recompute.cc).
  inherit_if_last(block);
  for (const auto& at : nodes_) {  // a victim that has not left
    const Replica& replica = block.replica(at->id);
    if (replica.listed && replica.memory && !replica.vacating && !at->index->contains(block))
      at->index->add(block);
  }
  changed_.notify_all();
  if (under_way_.load(std::memory_order_relaxed) != 0) wake_helper();  // who had to leave the block alone
}

void Engine::forget_move(Block& block) {
  IK_CHECK(moving_[block.moving_place_] == &block, "the block is among those that move");
  moving_[block.moving_place_] = moving_.back();
  moving_[block.moving_place_]->moving_place_ = block.moving_place_;
  moving_.pop_back();
}

void Engine::wait_move(Block& block) {
  while (is_moving(block)) wait_change();
}

void Engine::wait_change() {
  if (test_points_on()) [[unlikely]] {  // the test says who goes on meanwhile
    mutex_.unlock();
    reach("wait");
    mutex_.lock();
    return;
  }
  // The limit is a net under wake-ups that a fast unpin may miss (wake_waiters reads `waiters_` without the
  // lock).
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  changed_.wait_for(mutex_, std::chrono::microseconds(1000));
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

void Engine::wake_all() {
  MutexLock lock(mutex_);
  changed_.notify_all();
}

void Engine::inherit_if_last(Block& block) {
  if (made_of_.contains(&block)) return;  // who writes it is to ask first
  Replica* last = nullptr;
  for (const auto& at : nodes_) {
    Replica& replica = block.replica(at->id);
    const ReplicaState state = replica.word.state();
    if (state == ReplicaState::arriving) return;  // a spare copy on its way: the source stays shared
    if (!is_valid(state)) continue;
    if (last != nullptr) return;
    last = &replica;
  }
  if (last == nullptr || last->word.state() != ReplicaState::shared) return;
  transition(*last, ReplicaEvent::promote);
  last->copies.forget_done();
  if (!last->copies.out().empty())
    last->word.close();  // its next writer waits for those who read it (open_replica)
}

// ---------------------------------------------------------------- blocks

Block* Engine::create(Bytes size, Block::Space space) {
  const BlockId id{blocks_begun_.fetch_add(1, std::memory_order_relaxed) + 1};
  return Block::make_in(std::move(space), nodes_.size(), id, size).release();
}

NodeId Engine::any_replica(const Block& block) const {
  for (const auto& at : nodes_) {
    if (block.replica(at->id).word.state() != ReplicaState::absent) return at->id;
  }
  return kNoNode;
}

Block::Space Engine::destroy(Block* block) {
  const NeedsHeap books;
  if (stream_->on() && thread_state().recomputing == 0) [[unlikely]]
    stream_->freed(block->id());
  forget(*block);  // first: a plan drops it no more
  if (block->dropped.load(std::memory_order_relaxed)) [[unlikely]]
    forget_dropped(*block);
  if (!retire(*block)) die(*block);
  Block::Space space = Block::destroy(block);
  blocks_ended_.fetch_add(1, std::memory_order_release);
  wake_waiters();
  return space;
}

// No thread has looked for the block: it has one replica, which no copy touches.
bool Engine::retire(Block& block) {
  const NodeId id = any_replica(block);
  if (id == kNoNode || !nursery_.begin_death(block, id)) return false;
  Replica& replica = block.replica(id);
  Memory memory = std::move(replica.memory);
  IK_CHECK(next_state(replica.word.state(), ReplicaEvent::free) == static_cast<uint8_t>(ReplicaState::absent),
           "what dies has bytes to give back");
  replica.word.be_gone();
  observe(block, id, nullptr);
  memory.reset();
  nursery_.end_death(block);
  return true;
}

void Engine::die(Block& block) {
  Released freed;
  bool last = false;
  const auto release_one = [&]() IK_REQUIRES(mutex_) {
    if (const NodeId id = any_replica(block); id != kNoNode) {
      freed = begin_release(block, id, ReplicaEvent::free);
    }
    last = any_replica(block) == kNoNode;
  };
  {
    MutexLock lock(mutex_);
    wait_move(block);
    std::erase_if(escaped_,
                  [&block](const auto& entry) { return entry.first == &block; });  // detached ones too
    std::erase_if(holds_, [&block](const Hold& hold) { return hold.block == &block; });
    cancel_next_hop(block);
    if (!pinned_at_.empty()) forget_pins(block);
    release_one();
    if (!last) begin_move(block);  // for good: the evictor does not pick what is left
  }
  while (freed.node != kNoNode) {
    observe(block, freed.node, nullptr);
    release_memory(std::exchange(freed, {}), /*soon=*/false);
    if (last) break;  // most blocks have one, and take the lock once
    MutexLock lock(mutex_);
    release_one();
    if (last) forget_move(block);
  }
}

void Engine::adopt(Block& block, NodeId id, Memory memory) {
  const NeedsHeap books;
  Replica& replica = block.replica(id);
  // Its kernel is on the queue, and has no stamp until its operator ends (let_pins_go).
  const Stamp now = now_.load(std::memory_order_relaxed);
  replica.last_use.store(now, std::memory_order_relaxed);
  replica.last_write.store(kAllSoFar, std::memory_order_relaxed);
  replica.memory = std::move(memory);
  IK_CHECK(next_state(replica.word.state(), ReplicaEvent::born) == static_cast<uint8_t>(ReplicaState::owned),
           "only a block without bytes adopts some");
  replica.reuse_history.came(now, now);
  replica.word.be_born();
  const Node& at = node(id);
  const bool stands = nursery_.add(block);
  // Looked at after it has its place: a thread that looks for room either finds it there or is seen here.
  if (stands && !at.tight.load(std::memory_order_seq_cst)) [[likely]]
    return;
  MutexLock lock(mutex_);
  if (stands) {
    leave_nursery(block);
  } else {
    list_new(block);
    drain_nursery();  // all places are taken
  }
}

void Engine::replace(Block& block, NodeId id, Memory memory, Bytes size) {
  const NeedsHeap books;
  Replica& replica = block.replica(id);
  touched(replica);  // by the kernel that is on the queue
  MutexLock lock(mutex_);
  wait_move(block);
  leave_nursery(block);
  if (block.size() == Bytes(0)) {
    // No operator acquires a block without bytes, so empty replicas elsewhere may be valid still (I2).
    for (const auto& at : nodes_) {
      if (at->id == id || block.replica(at->id).word.state() == ReplicaState::absent) continue;
      (void)detach(block, at->id, ReplicaEvent::free);  // there is no memory; a move on its way there is over
    }
    inherit_if_last(block);
  }
  block.size_.store(size.count(), std::memory_order_relaxed);
  if (replica.word.state() == ReplicaState::absent) {
    replica.memory = std::move(memory);
    transition(replica, ReplicaEvent::born);
    list(block, id);
    return;
  }
  IK_CHECK(replica.word.state() == ReplicaState::owned, "only the owner's storage is resized");
  unlist(block, id);
  replica.memory.swap(memory);
  list(block, id);
  begin_release(node(id));
  std::vector<Event> users = replica.copies.take();
  const MoveScope move(*this, block);
  release_memory({id, std::move(memory), std::move(users)}, /*soon=*/false);
}

Status Engine::resize_unwritten(Block& block, Bytes size) {
  MutexLock lock(mutex_);
  wait_move(block);
  for (const auto& at : nodes_) {
    if (block.replica(at->id).word.state() != ReplicaState::absent || block.dropped) {
      return Status(Code::invalid_argument, "the block has been written; its owner must resize it");
    }
  }
  block.size_.store(size.count(), std::memory_order_relaxed);
  return {};
}

Memory Engine::detach(Block& block, NodeId id) {
  MutexLock lock(mutex_);
  wait_move(block);
  leave_nursery(block);
  if (block.replica(id).word.state() == ReplicaState::absent) return {};
  Released handed_over = detach(block, id, ReplicaEvent::free);
  inherit_if_last(block);
  const MoveScope move(*this, block);
  device(id).order_after(handed_over.users);  // I6: the owner that frees it knows nothing of our copies
  return std::move(handed_over.memory);
}

size_t Engine::block_count() const {
  const uint64_t ended = blocks_ended_.load(std::memory_order_acquire);  // first: each of them has begun
  return static_cast<size_t>(blocks_begun_.load(std::memory_order_relaxed) - ended);
}

// ---------------------------------------------------------------- turns

OperatorScope::OperatorScope(Engine& engine, NodeId id, Bytes operands)
    : engine_(engine), node_(engine.node(id)), nested_(thread_state().running[index_of(id)]) {
  if (Engine::kLargeOperator * operands.count() > node_.budget.load(std::memory_order_relaxed) &&
      !node_.tight.load(std::memory_order_relaxed)) {
    node_.tight.store(true, std::memory_order_seq_cst);
  }
  node_.running.fetch_add(1, std::memory_order_seq_cst);
  // Looked at after the count: a thread that takes a turn either is seen here or sees this operator.
  if (nested_ == 0 && node_.tight.load(std::memory_order_seq_cst)) {
    node_.running.fetch_sub(1, std::memory_order_seq_cst);
    MutexLock lock(engine_.mutex_);
    // Also until those are through that began before turns were needed.
    while (node_.has_turn || node_.running.load(std::memory_order_seq_cst) != 0) engine_.wait_change();
    node_.has_turn = true;
    node_.running.fetch_add(1, std::memory_order_relaxed);
    has_turn_ = true;
  }
  ++nested_;
}

OperatorScope::~OperatorScope() {
  --nested_;
  node_.running.fetch_sub(1, std::memory_order_seq_cst);
  if (has_turn_) {
    MutexLock lock(engine_.mutex_);
    node_.has_turn = false;
    if (engine_.waiters_.load(std::memory_order_relaxed) != 0) engine_.changed_.notify_all();
  } else {
    engine_.wake_waiters();
  }
}

}  // namespace innkeeper
