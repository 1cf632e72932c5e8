// What is planned moves here: at each operator's end the planner hears what was touched, and what it orders
// is carried out, by the thread whose operator that was. Nothing here waits for room or for another thread's
// move: what cannot be done at once is left to whoever needs it.
#include <algorithm>

#include "residency/engine.h"
#include "residency/moving.h"
#include "residency/thread_state.h"

namespace innkeeper {

void Engine::set_planning(bool on) {
  const MutexLock lock(planning_mutex_);
  may_plan_.store(on, std::memory_order_relaxed);
  if (on) return;
  follows_.store(false, std::memory_order_relaxed);
  for (const NodeId each : computing_) node(each).unplanned.store(0, std::memory_order_relaxed);
  if (planner_ != nullptr) planner_->interrupt();
}

PlanningStats Engine::planning() const {
  const MutexLock lock(planning_mutex_);
  if (planner_ == nullptr) return {};
  const plan::RoundCost& cost = planner_->cost();
  return {.follows = planner_->follows() && may_plan_.load(std::memory_order_relaxed),
          .rounds = planner_->rounds(),
          .divergences = planner_->divergences(),
          .round = {.operators = cost.operators,
                    .bytes_planned = cost.arriving.count(),
                    .bytes_bound = cost.bound.count(),
                    .bytes_short = cost.shortage.count(),
                    .bytes_fetched = arrived_in_round_}};
}

// Bytes that the program's blocks may have at a node between them: all but what kernels keep there, and users
// of what the planner does not know.
Bytes Engine::plannable(NodeId id) const {
  const Node& at = node(id);
  if (at.kind != NodeKind::accelerator || at.device->is_lost()) return Bytes(0);
  const MutexLock lock(mutex_);
  const Bytes kernels = Bytes(at.used.load(std::memory_order_relaxed)) - at.replica_bytes;
  Bytes unknown{0};
  for (const auto& [block, nodes] : pinned_at_) {
    if (block->name_.load(std::memory_order_relaxed) == 0 &&
        std::find(nodes.begin(), nodes.end(), id) != nodes.end())
      unknown += round_up(block->size());
  }
  return budget(id) - kernels - unknown;
}

void Engine::follow(NodeId id, std::span<const Access> accesses) {
  const MutexLock lock(planning_mutex_);
  if (!may_plan_.load(std::memory_order_relaxed)) {
    follows_.store(false, std::memory_order_relaxed);  // who evicted just then had set it again
    return;
  }
  if (planned_thread_ != &thread_state()) {  // one thread's program at a time
    if (planned_thread_ != nullptr && ++strangers_ < kStrangers) return;
    planned_thread_ = &thread_state();
  }
  strangers_ = 0;
  if (planner_ == nullptr)
    planner_ = std::make_unique<plan::Planner>([this](NodeId each) { return plannable(each); });
  touches_.clear();
  for (const Access& access : accesses) {
    Block& block = *access.block;
    if (block.size() == Bytes(0)) continue;
    int64_t name = block.name_.load(std::memory_order_relaxed);
    if (name == 0) {
      name = planner_->meet(&block);
      block.name_.store(name, std::memory_order_relaxed);
    }
    const bool pinned = block.replica(id).user_pins.load(std::memory_order_relaxed) != 0;
    touches_.push_back({name, block.size(), access.write, pinned});
  }
  if (touches_.empty()) return;
  for (const NodeId each : computing_) {
    std::atomic<int64_t>& unplanned = node(each).unplanned;
    if (unplanned.load(std::memory_order_relaxed) != 0)
      planner_->unplanned(each, Bytes(unplanned.exchange(0, std::memory_order_relaxed)));
  }
  const int64_t rounds = planner_->rounds();
  planner_->ended(id, touches_);
  if (planner_->begins()) {
    const int64_t arrived = arrived_.load(std::memory_order_relaxed);
    if (planner_->rounds() > rounds) arrived_in_round_ = (arrived - arrived_before_) / planner_->cost().times;
    arrived_before_ = arrived;
  }
  for (plan::Order order; planner_->next(order);) {
    if (!order.arrives) {
      leave_as_planned(*order.block, order.node);
    } else if (!arrive_as_planned(*order.block, order.node)) {
      planner_->postpone();
    }
  }
}

void Engine::forget(const Block& block) {
  const int64_t name = block.name_.load(std::memory_order_relaxed);
  if (name == 0) return;
  const MutexLock lock(planning_mutex_);
  planner_->forget(name);
}

void Engine::leave_as_planned(Block& block, NodeId id) {
  MutexLock lock(mutex_);
  Replica& replica = block.replica(id);
  if (is_moving(block) || !is_valid(replica.word.state()) || !replica.word.close_if_unpinned()) return;
  const MoveScope move(*this, block);
  // Room is made below, but others are not waited for: their operators may be about to tell the planner.
  ThreadState& self = thread_state();
  ++self.acquiring;
  (void)leave(node(id), block, true);  // where that fails the block stays, as it was
  --self.acquiring;
}

// False: there is no room yet.
bool Engine::arrive_as_planned(Block& block, NodeId id) {
  MutexLock lock(mutex_);
  if (is_moving(block) || block.replica(id).word.state() != ReplicaState::absent) return true;
  if (free(id) < round_up(block.size())) return false;
  if (source_of(block, id) == kNoNode) return true;
  ThreadState& self = thread_state();
  const MoveScope move(*this, block);
  self.only_free_room = true;
  const Status brought = bring(block, id);
  self.only_free_room = false;
  return brought.code() != Code::busy;
}

}  // namespace innkeeper
