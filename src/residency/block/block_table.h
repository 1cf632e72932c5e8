// Nodes, blocks and the engine's mutex: which block has which replica, which thread works on it, and the
// books of each node. The lowest part of an engine; it moves no bytes and makes no free space.
//
// A thread that works on a block without the lock marks the block as moving (moving_scopes.h). Every change
// of a replica's state is checked against the table in state.h.
//
// Ownership: owns the nodes and their devices, and the eviction policy. A block lives from create() until
// Operands::destroy().
// Thread safety: as annotated; functions without an annotation may be called from any thread.
// Locks: engine_mutex (table_lock.h). No thread waits for a moving block while it pins others, so waits form
// no cycle.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "policy/eviction.h"
#include "residency/block/block.h"
#include "residency/block/move_signal.h"
#include "residency/block/node.h"
#include "residency/block/nursery.h"
#include "residency/block/observers.h"
#include "residency/block/table_lock.h"
#include "residency/block/thread_state.h"

namespace innkeeper {

struct NodeSetup {
  std::unique_ptr<Device> device;
  Bytes budget;
  bool computes = false;  // Operators may run at the node.
  plan::Speed speed = {};
  std::function<ComputeTime()> time = nullptr;  // Null: the node's compute time is not measured.
};

class BlockTable {
 public:
  // Requires: one host node, at most one disk node, at most kMaxNodes in all.
  BlockTable(std::vector<NodeSetup> nodes, std::unique_ptr<EvictionPolicy> policy);
  // Waits for every device, then frees parked host memory. Called before the engine's parts end: memory that
  // is freed is uncharged.
  void free_parked() IK_EXCLUDES(engine_mutex);

  // ---- nodes: constant after construction
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  Node& node(NodeId id) { return *nodes_[index_of(id)]; }
  const Node& node(NodeId id) const { return *nodes_[index_of(id)]; }
  Device& device(NodeId id) const { return *nodes_[index_of(id)]->device; }
  const std::vector<NodeId>& computing() const { return computing_; }
  NodeId host() const { return host_; }
  NodeId disk() const { return disk_; }             // kNoNode if there is none
  NodeId find_node(const std::string& name) const;  // kNoNode if there is none
  NodeId backing(const Node& node) const;           // Node that receives evicted bytes, or kNoNode.
  bool reaches(NodeId from, NodeId to) const {      // Bytes go directly, without a third node.
    return from == host_ || to == host_ || device(to).can_copy_from(device(from));
  }
  const EvictionPolicy& policy() const { return *policy_; }

  // ---- replicas
  // Promotes the block's only valid replica to owner, unless a copy of it is on its way or a discarded block
  // needs its bytes as they are.
  void promote_if_last(Block& block) IK_REQUIRES(engine_mutex);
  NodeId any_replica(const Block& block) const;  // kNoNode if the block has none
  // Valid bytes, on a device that can read them.
  bool has_replica(const Block& block, NodeId id) const {
    return is_valid(block.replica(id).word.state()) && !device(id).is_lost();
  }

  // ---- the clock of operators
  Stamp now() const { return now_.load(std::memory_order_relaxed); }
  Stamp next_stamp() { return now_.fetch_add(1, std::memory_order_seq_cst) + 1; }
  // Stamps a replica that work on the compute queue, up to now, may have read and written.
  Stamp touched(Replica& replica);

  // ---- each node's list of replicas
  void list(Block& block, NodeId id) IK_REQUIRES(engine_mutex);
  void unlist(Block& block, NodeId id) IK_REQUIRES(engine_mutex);
  void list_new(Block& block)
      IK_REQUIRES(engine_mutex);  // A result of adopt() that has no place in the nursery.
  Nursery& nursery() { return nursery_; }
  // Lists fresh results: all, or one block. Before a thread searches lists it drains the nursery.
  void drain_nursery() IK_REQUIRES(engine_mutex);
  void leave_nursery(Block& block) IK_REQUIRES(engine_mutex);

  // ---- blocks that a thread works on without the lock
  const std::vector<Block*>& moving() const IK_REQUIRES(engine_mutex) { return moving_; }
  void begin_move(Block& block) IK_REQUIRES(engine_mutex);
  void end_move(Block& block) IK_REQUIRES(engine_mutex);
  void forget_move(Block& block) IK_REQUIRES(engine_mutex);  // Ends the move of a block that dies.
  // Waits until no thread works on the block. Releases the lock meanwhile.
  void wait_move(Block& block) IK_REQUIRES(engine_mutex);
  // Whether another thread moves bytes to, from or at the node, or a result ends there: that may free memory.
  bool others_move(const Node& node) const IK_REQUIRES(engine_mutex);
  // Whether this thread may wait until the block is not moving, while it keeps its own marks: a thread that
  // has marks waits for no thread that itself waits, so that no two wait for each other.
  bool may_await(const Block& block) const IK_REQUIRES(engine_mutex) {
    return !block.is_moving() ||
           (!block.is_moved_by_me() && (thread_state().marks == 0 || !block.is_moved_by_waiting_thread()));
  }
  // Waits until some thread reports a change, at most 1 ms. Releases the lock meanwhile.
  void wait_change() IK_REQUIRES(engine_mutex);
  void notify() { changed_.notify_all(); }
  // Reports a change without the lock; one load where no thread waits.
  void wake_waiters() {
    if (waiters_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake_all();
  }
  MoveSignal& signal() { return signal_; }

  // ---- blocks
  // `space`: memory of a block that destroy() gave back, for reuse.
  Block* create(Bytes size, Block::Space space);
  Block::Space end(Block* block);  // Its replicas have gone.
  size_t block_count() const;
  void set_observer(MemoryObserver observer) { observer_ = std::move(observer); }
  void observe(Block& block, NodeId id, void* data) const {
    if (observer_) observer_(block, id, data);
  }

 private:
  friend class TableLock;
  void link(Block& block, NodeId id) IK_REQUIRES(engine_mutex);
  void wake_all() IK_EXCLUDES(engine_mutex);

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<NodeId> computing_;
  NodeId host_ = kNoNode;
  NodeId disk_ = kNoNode;
  std::unique_ptr<EvictionPolicy> policy_;
  MemoryObserver observer_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::atomic<int> waiters_ = 0;
  std::atomic<Stamp> now_ = 1;  // Operators so far.
  std::atomic<uint64_t> blocks_begun_ = 0;
  std::atomic<uint64_t> blocks_ended_ = 0;
  Nursery nursery_;
  std::vector<Block*> moving_ IK_GUARDED_BY(engine_mutex);  // Unordered.
  MoveSignal signal_;
};

inline Mutex& TableLock::mutex_of(const BlockTable& table) { return table.mutex_; }
inline TableLock::TableLock(const BlockTable& table) IK_NO_THREAD_SAFETY_ANALYSIS : mutex_(table.mutex_) {
  mutex_.lock();
}
inline TableLock::~TableLock() IK_NO_THREAD_SAFETY_ANALYSIS {
  if (held_) mutex_.unlock();
}
inline void TableLock::unlock() IK_NO_THREAD_SAFETY_ANALYSIS {
  held_ = false;
  mutex_.unlock();
}
inline void TableLock::lock() IK_NO_THREAD_SAFETY_ANALYSIS {
  mutex_.lock();
  held_ = true;
}
inline void TableLock::wait(CondVar& condition) IK_NO_THREAD_SAFETY_ANALYSIS { condition.wait(mutex_); }
inline void TableLock::wait_for(CondVar& condition,
                                std::chrono::microseconds limit) IK_NO_THREAD_SAFETY_ANALYSIS {
  condition.wait_for(mutex_, limit);
}
inline Unlocked::Unlocked(const BlockTable& table) IK_NO_THREAD_SAFETY_ANALYSIS
    : mutex_(TableLock::mutex_of(table)) {
  mutex_.unlock();
}
inline Unlocked::~Unlocked() IK_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }

}  // namespace innkeeper
