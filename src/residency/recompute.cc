// Bytes that are dropped, since the operator that made them can make them again (recorded_call.h).
//
// What a dropped block is made of stays as it is meanwhile: it lives by the recorded call, and is shared,
// never owned, so an operator that is to write it comes by make_exclusive(), which finds it among `made_of_`.
// What is made of others is not dropped while something is made of it, so no recorded call waits for another.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "residency/engine.h"
#include "residency/moving.h"
#include "residency/operator_scope.h"

namespace innkeeper {

namespace {

// While it lives no listener is told of what this thread's operators do: they are no part of the program.
class Unheard {
 public:
  Unheard() { ++thread_state().recomputing; }
  ~Unheard() { --thread_state().recomputing; }
  Unheard(const Unheard&) = delete;
  Unheard& operator=(const Unheard&) = delete;
};

}  // namespace

bool Engine::drop(Block& block, NodeId id) {
  std::unique_ptr<RecordedCall> unused;
  return drop(block, id, unused);
}

bool Engine::drop(Block& block, NodeId id, std::unique_ptr<RecordedCall>& call) {
  if (!recomputes() || !recompute_index_ || thread_state().recomputing != 0) return false;
  call = recompute_index_(block);
  if (call == nullptr || call->node() != id || call->inputs().empty()) return false;
  MutexLock lock(mutex_);
  Replica& replica = block.replica(id);
  // Else it leaves without a copy anyway, or something dropped is made of it.
  const bool alone = replica.word.state() == ReplicaState::owned;
  if (!alone || is_moving(block) || dropped_.contains(&block)) return false;
  if (block.writes() != call->writes()) return false;
  if (!call->in_force()) return false;
  if (!has_room_for(*call, block)) return false;
  if (!hold_inputs(block, *call)) return false;
  if (!replica.word.close_if_unpinned()) {
    let_inputs_go(block, *call);
    return false;
  }
  // A thread that comes for an input from here on finds it, and waits until it has left.
  dropped_[&block] = {std::move(call), true};
  const MoveScope move(*this, block);
  observe(block, id, nullptr);
  MutexLock again(mutex_);
  Released freed = begin_release(block, id, ReplicaEvent::free);
  replica.word.open();
  block.dropped.store(true, std::memory_order_relaxed);
  dropped_[&block].under_way = false;
  changed_.notify_all();
  again.unlock();
  release_memory(std::move(freed), /*soon=*/true);
  if (log_enabled(LogLevel::info)) {
    log(LogLevel::info, "drop block " + std::to_string(static_cast<uint64_t>(block.id())) + " (" +
                            to_string(block.size()) + ") from " + device(id).name() +
                            ", to be computed again");
  }
  return true;
}

// Whether the operator's operands and result fit beside what the user has pinned, which cannot leave for
// them.
bool Engine::has_room_for(const RecordedCall& call, const Block& result) const {
  const Node& at = node(call.node());
  Bytes needed = round_up(result.size());
  for (const RecordedCall::Input& input : call.inputs()) needed += round_up(input.block->size());
  return needed <= Bytes(at.budget.load(std::memory_order_relaxed)) - at.pinned_by_user;
}

// False, and nothing is held, where an input is not what it was, or may be written unseen.
bool Engine::hold_inputs(Block& block, const RecordedCall& call) {
  const auto may_hold = [this](const RecordedCall::Input& input) IK_REQUIRES(mutex_) {
    Block& from = *input.block;
    if (is_moving(from) || from.dropped.load(std::memory_order_relaxed) || from.writes() != input.writes)
      return false;
    leave_nursery(from);
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& at) {
      Replica& replica = from.replica(at->id);
      return replica.escapes == 0 && (replica.word.state() != ReplicaState::owned || share(replica));
    });
  };
  for (const RecordedCall::Input& input : call.inputs()) made_of_[input.block].push_back(&block);
  const auto inputs = call.inputs();
  if (std::all_of(inputs.begin(), inputs.end(), may_hold)) return true;
  let_inputs_go(block, call);
  return false;
}

void Engine::let_inputs_go(Block& block, const RecordedCall& call) {
  for (const RecordedCall::Input& input : call.inputs()) {
    const auto found = made_of_.find(input.block);
    if (found == made_of_.end()) continue;  // it is an input twice
    std::erase(found->second, &block);
    if (!found->second.empty()) continue;
    made_of_.erase(found);
    if (!is_moving(*input.block)) inherit_if_last(*input.block);  // else once it does not (end_move)
  }
}

Status Engine::recompute(std::span<const Access> accesses) {
  MutexLock lock(mutex_);
  for (const Access& access : accesses) {
    while (access.write) {
      const auto found = made_of_.find(access.block);
      if (found == made_of_.end()) break;
      IK_RETURN_IF_ERROR(recompute(*found->second.back()));
    }
    while (access.block->dropped.load(std::memory_order_relaxed))
      IK_RETURN_IF_ERROR(recompute(*access.block));
  }
  return {};
}

Status Engine::recompute_all() {
  MutexLock lock(mutex_);
  while (!dropped_.empty()) IK_RETURN_IF_ERROR(recompute(*const_cast<Block*>(dropped_.begin()->first)));
  return {};
}

// Before room is taken for good: later there may be too little for an operator's operands and result.
// What cannot be computed now stays dropped.
void Engine::recompute_while_there_is_room() {
  MutexLock lock(mutex_);
  for (size_t left = dropped_.size(); left > 0 && !dropped_.empty(); --left) {
    if (!recompute(*const_cast<Block*>(dropped_.begin()->first)).ok()) return;
  }
}

// One step towards the block's bytes: computes them, or waits a while for who does. The block may be gone
// afterwards, as another thread's.
Status Engine::recompute(Block& block) {
  const auto found = dropped_.find(&block);
  IK_CHECK(found != dropped_.end(), "what is dropped, and what it is made of, is known together");
  Dropped& entry = found->second;
  if (entry.under_way) {
    wait_change();
    return {};
  }
  entry.under_way = true;
  mutex_.unlock();
  Status status;
  run_unheard(entry.call->node(), [&] { status = entry.call->follow(block); });
  mutex_.lock();
  entry.under_way = false;
  changed_.notify_all();
  if (!status.ok()) return status;
  recomputed_.fetch_add(1, std::memory_order_relaxed);
  std::unique_ptr<RecordedCall> call = std::move(entry.call);
  dropped_.erase(&block);
  let_inputs_go(block, *call);
  mutex_.unlock();  // blocks may go with it
  call = nullptr;
  mutex_.lock();
  return {};
}

void Engine::run_unheard(NodeId id, const std::function<void()>& run) {
  const Unheard unheard;
  const Node& at = node(id);
  double& recomputed = thread_state().recomputed[index_of(id)];
  const double before = at.time == nullptr ? 0 : at.time().kernels - recomputed;
  run();
  if (at.time != nullptr) recomputed = at.time().kernels - before;  // With the recorded calls that it caused.
}

Status Engine::refill(Block& block, Block& made, NodeId id) {
  if (made.size() != block.size()) {
    return Status(Code::device_failed, "an operator that made " + to_string(block.size()) + " makes " +
                                           to_string(made.size()) + " of the same now");
  }
  Access access{.block = &made, .write = true};
  const OperatorScope scope(*this, id, made.size());
  IK_RETURN_IF_ERROR(acquire(id, std::span(&access, 1)));
  Replica& source = made.replica(id);
  Replica& target = block.replica(id);
  MutexLock lock(mutex_);
  wait_move(block);
  wait_move(made);
  leave_nursery(made);
  unlist(made, id);
  target.memory = std::move(source.memory);
  source.word.be_gone();
  const MoveScope move(*this, block);
  observe(made, id, nullptr);
  observe(block, id, target.memory.data());
  touched(target);
  const MutexLock again(mutex_);
  transition(target, ReplicaEvent::born);
  list(block, id);
  block.dropped.store(false, std::memory_order_relaxed);
  return {};
}

// It dies without its bytes.
void Engine::forget_dropped(Block& block) {
  std::unique_ptr<RecordedCall> call;  // goes without the lock, and blocks may with it
  MutexLock lock(mutex_);
  auto found = dropped_.find(&block);
  while (found != dropped_.end() && found->second.under_way) {
    wait_change();
    found = dropped_.find(&block);
  }
  if (found == dropped_.end()) return;
  call = std::move(found->second.call);
  dropped_.erase(found);
  let_inputs_go(block, *call);
}

}  // namespace innkeeper
