#include "residency/block/block_table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <utility>

#include "base/test_point.h"

namespace innkeeper {

BlockTable::BlockTable(std::vector<NodeSetup> nodes, std::unique_ptr<EvictionPolicy> policy)
    : policy_(std::move(policy)) {
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

void BlockTable::free_parked() {
  for (auto& node : nodes_) (void)node->device->synchronize();
  for (auto& node : nodes_) {
    std::deque<ParkedMemory> parked;
    TableLock lock(*this);
    parked.swap(node->parked);
    lock.unlock();
  }
}

NodeId BlockTable::find_node(const std::string& name) const {
  for (const auto& node : nodes_) {
    if (node->device->name() == name) return node->id;
  }
  return kNoNode;
}

NodeId BlockTable::backing(const Node& node) const {
  switch (node.kind) {
    case NodeKind::accelerator: return host_;
    case NodeKind::host: return disk_;
    case NodeKind::disk: return kNoNode;
  }
  return kNoNode;
}

void BlockTable::promote_if_last(Block& block) {
  if (block.feeds_discarded()) return;  // Its next writer must ask (Operands::make_exclusive).
  Replica* last = nullptr;
  for (const auto& at : nodes_) {
    Replica& replica = block.replica(at->id);
    const ReplicaState state = replica.word.state();
    if (state == ReplicaState::arriving) return;  // A spare is on its way: the source stays shared.
    if (!is_valid(state)) continue;
    if (last != nullptr) return;
    last = &replica;
  }
  if (last == nullptr || last->word.state() != ReplicaState::shared) return;
  last->transition(ReplicaEvent::promote);
  last->copies.forget_done();
  if (!last->copies.out().empty())
    last->word.close();  // The next writer waits for these copies (open_replica).
}

NodeId BlockTable::any_replica(const Block& block) const {
  for (const auto& at : nodes_) {
    if (block.replica(at->id).word.state() != ReplicaState::absent) return at->id;
  }
  return kNoNode;
}

// The caller cannot say which kernels use the replica, so all work that is queued now counts as its user and
// writer.
Stamp BlockTable::touched(Replica& replica) {
  const Stamp stamp = next_stamp();
  replica.last_use.store(stamp, std::memory_order_relaxed);
  replica.last_write.store(stamp, std::memory_order_relaxed);
  return stamp;
}

// ---------------------------------------------------------------- lists

void BlockTable::link(Block& block, NodeId id) {
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

void BlockTable::list(Block& block, NodeId id) {
  link(block, id);
  if (block.replica(id).memory) node(id).index->came(block);
}

void BlockTable::unlist(Block& block, NodeId id) {
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

// The index knows of the result since its birth (Operands::adopt).
void BlockTable::list_new(Block& block) {
  const NodeId id = any_replica(block);
  link(block, id);
  if (block.replica(id).memory) node(id).index->add(block);
}

void BlockTable::drain_nursery() {
  std::array<Block*, Nursery::kPlaces> taken;
  const size_t count = nursery_.take_all(taken);
  for (size_t i = 0; i < count; ++i) list_new(*taken[i]);
}

void BlockTable::leave_nursery(Block& block) {
  if (nursery_.take(block)) list_new(block);
}

// ---------------------------------------------------------------- blocks that a thread works on

void BlockTable::begin_move(Block& block) {
  IK_CHECK(!block.is_moving());
  leave_nursery(block);
  block.moving_thread_ = &thread_state();
  ++thread_state().marks;
  block.moving_place_ = moving_.size();
  moving_.push_back(&block);
}

void BlockTable::end_move(Block& block) {
  IK_CHECK(block.moving_thread_ == &thread_state());
  block.moving_thread_ = nullptr;
  forget_move(block);
  // Other replicas may have left, a copy out of the last one may have failed, or a discarded block that this
  // one feeds may have been recomputed.
  promote_if_last(block);
  for (const auto& at : nodes_) {  // A victim that did not leave.
    const Replica& replica = block.replica(at->id);
    if (replica.listed && replica.memory && !replica.vacating && !at->index->contains(block))
      at->index->add(block);
  }
  changed_.notify_all();
  if (signal_.is_needed()) signal_.raise();  // A move may have waited for the block.
}

void BlockTable::forget_move(Block& block) {
  --thread_state().marks;
  IK_CHECK(moving_[block.moving_place_] == &block, "the block is among those that move");
  moving_[block.moving_place_] = moving_.back();
  moving_[block.moving_place_]->moving_place_ = block.moving_place_;
  moving_.pop_back();
}

void BlockTable::wait_move(Block& block) {
  while (block.is_moving()) wait_change();
}

// Another thread's move, or a fresh result that ends at the node, may free memory there.
bool BlockTable::others_move(const Node& node) const {
  const ThreadState& self = thread_state();
  if (node.moving > self.moving[index_of(node.id)] || nursery_.any_dying(node.id)) return true;
  return std::any_of(moving_.begin(), moving_.end(), [&](const Block* block) {
    return block->moving_thread_ != &self && block->replica(node.id).listed;
  });
}

void BlockTable::wait_change() IK_NO_THREAD_SAFETY_ANALYSIS {
  struct Waits {  // Ends with the lock held, after an exception too.
    ~Waits() { thread_state().waits = false; }
  } const waits;
  thread_state().waits = true;
  if (test_points_on()) [[unlikely]] {  // The test decides which thread goes on meanwhile.
    const Unlocked gap(*this);
    reach("wait");
    return;
  }
  // wake_waiters() reads `waiters_` without the lock, so a fast unpin may miss this thread: the limit bounds
  // that wait.
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  changed_.wait_for(mutex_, std::chrono::microseconds(1000));
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

void BlockTable::wake_all() {
  TableLock lock(*this);
  changed_.notify_all();
}

// ---------------------------------------------------------------- blocks

Block* BlockTable::create(Bytes size, Block::Space space) {
  const BlockId id{blocks_begun_.fetch_add(1, std::memory_order_relaxed) + 1};
  return Block::make_in(std::move(space), nodes_.size(), id, size).release();
}

Block::Space BlockTable::end(Block* block) {
  Block::Space space = Block::destroy(block);
  blocks_ended_.fetch_add(1, std::memory_order_release);
  wake_waiters();
  return space;
}

size_t BlockTable::block_count() const {
  const uint64_t ended = blocks_ended_.load(std::memory_order_acquire);  // first: each of them has begun
  return static_cast<size_t>(blocks_begun_.load(std::memory_order_relaxed) - ended);
}

}  // namespace innkeeper
