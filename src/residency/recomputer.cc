#include "residency/recomputer.h"

#include <algorithm>
#include <utility>

#include "base/heap_reserve.h"
#include "base/log.h"
#include "residency/movement/moving_scopes.h"

namespace innkeeper {

namespace {

// While one lives, no listener hears of this thread's operators: they are no part of the program.
class Untracked {
 public:
  Untracked() { ++thread_state().recomputing; }
  ~Untracked() { --thread_state().recomputing; }
  Untracked(const Untracked&) = delete;
  Untracked& operator=(const Untracked&) = delete;
};

// Marks a discarded block as being recomputed for a scope that begins and ends with the lock held. Where its
// call throws the mark ends, too, so that no other thread waits for it for ever.
class UnderWay {
 public:
  UnderWay(BlockTable& table, bool& mark) : table_(table), mark_(mark) { mark_ = true; }
  ~UnderWay() {
    mark_ = false;
    table_.notify();
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

 private:
  BlockTable& table_;
  bool& mark_;
};

}  // namespace

Status Recomputer::gather(NodeId id, std::span<Access> accesses, Bytes operands,
                          std::optional<NodeAdmission>& admission) {
  for (;;) {
    admission.reset();  // An admission at another node must not be open.
    admission.emplace(table_, id, operands);
    IK_RETURN_IF_ERROR(heap_reserve_ready());
    Status status;
    {
      const NeedsHeap books;
      status = operands_.acquire(id, accesses);
    }
    if (status.code() != Code::discarded) [[likely]]
      return status;
    admission.reset();
    IK_RETURN_IF_ERROR(recompute(accesses));
  }
}

// ---------------------------------------------------------------- discard

bool Recomputer::discard(Block& block, NodeId id, std::unique_ptr<RecordedCall>& call) {
  if (!is_on() || !index_ || is_untracked()) return false;
  call = index_(block);
  if (call == nullptr || call->node() != id || call->inputs().empty()) return false;
  TableLock lock(table_);
  Replica& replica = block.replica(id);
  // Another replica would make eviction free; a shared one may feed a discarded block.
  const bool alone = replica.word.state() == ReplicaState::owned;
  if (!alone || block.is_moving() || discarded_.contains(&block)) return false;
  if (block.writes() != call->writes()) return false;
  if (!call->in_force()) return false;
  if (!fits(*call, block)) return false;
  if (!keep_inputs(block, *call)) return false;
  if (!replica.word.close_if_unpinned()) {
    release_inputs(block, *call);
    return false;
  }
  // From here on a thread that is to write an input finds the entry, and waits.
  discarded_[&block] = {std::move(call), true};
  const BlockMovingScope move(table_, block);
  table_.observe(block, id, nullptr);
  TableLock again(table_);
  Released freed = release_.begin(block, id, ReplicaEvent::free);
  replica.word.open();
  block.discarded.store(true, std::memory_order_relaxed);
  discarded_[&block].under_way = false;
  table_.notify();
  again.unlock();
  release_.finish(std::move(freed), /*soon=*/true);
  if (log_enabled(LogLevel::info)) {
    log(LogLevel::info, "discard block " + std::to_string(static_cast<uint64_t>(block.id())) + " (" +
                            to_string(block.size()) + ") from " + table_.device(id).name() +
                            ", to be recomputed");
  }
  return true;
}

// Whether the operator's operands and result fit beside the user's pins, which cannot leave for them.
bool Recomputer::fits(const RecordedCall& call, const Block& result) const {
  const Node& at = table_.node(call.node());
  Bytes needed = round_up(result.size());
  for (const RecordedCall::Input& input : call.inputs()) needed += round_up(input.block->size());
  return needed <= Bytes(at.budget.load(std::memory_order_relaxed)) - at.pinned_by_user;
}

// False, and no input is kept, where an input has been written since, or may be written unseen.
bool Recomputer::keep_inputs(Block& block, const RecordedCall& call) {
  const auto may_hold = [this](const RecordedCall::Input& input) IK_REQUIRES(engine_mutex) {
    Block& from = *input.block;
    if (from.is_moving() || from.discarded.load(std::memory_order_relaxed) || from.writes() != input.writes)
      return false;
    table_.leave_nursery(from);
    return std::all_of(table_.nodes().begin(), table_.nodes().end(), [&](const auto& at) {
      Replica& replica = from.replica(at->id);
      return replica.escapes == 0 && (replica.word.state() != ReplicaState::owned || replica.share());
    });
  };
  for (const RecordedCall::Input& input : call.inputs()) {
    fed_by_[input.block].push_back(&block);
    input.block->feeds_discarded_ = true;
  }
  const auto inputs = call.inputs();
  if (std::all_of(inputs.begin(), inputs.end(), may_hold)) return true;
  release_inputs(block, call);
  return false;
}

void Recomputer::release_inputs(Block& block, const RecordedCall& call) {
  for (const RecordedCall::Input& input : call.inputs()) {
    const auto found = fed_by_.find(input.block);
    if (found == fed_by_.end()) continue;  // The call names the input twice.
    std::erase(found->second, &block);
    if (!found->second.empty()) continue;
    fed_by_.erase(found);
    input.block->feeds_discarded_ = false;
    if (!input.block->is_moving()) table_.promote_if_last(*input.block);  // Else end_move() does it.
  }
}

// ---------------------------------------------------------------- recompute

Status Recomputer::recompute(std::span<const Access> accesses) {
  TableLock lock(table_);
  for (const Access& access : accesses) {
    while (access.write) {
      const auto found = fed_by_.find(access.block);
      if (found == fed_by_.end()) break;
      IK_RETURN_IF_ERROR(recompute(*found->second.back()));
    }
    while (access.block->discarded.load(std::memory_order_relaxed))
      IK_RETURN_IF_ERROR(recompute(*access.block));
  }
  return {};
}

Status Recomputer::recompute_all() {
  TableLock lock(table_);
  while (!discarded_.empty()) IK_RETURN_IF_ERROR(recompute(*const_cast<Block*>(discarded_.begin()->first)));
  return {};
}

void Recomputer::recompute_while_possible() {
  TableLock lock(table_);
  for (size_t left = discarded_.size(); left > 0 && !discarded_.empty(); --left) {
    if (!recompute(*const_cast<Block*>(discarded_.begin()->first)).ok()) return;
  }
}

// One step towards the block's bytes: follows its recorded call, or waits for a change while another thread
// does. The block may have ended afterwards.
Status Recomputer::recompute(Block& block) {
  const auto found = discarded_.find(&block);
  IK_CHECK(found != discarded_.end(), "a discarded block has its recorded call");
  Discarded& entry = found->second;
  if (entry.under_way) {
    table_.wait_change();
    return {};
  }
  Status status;
  {
    const UnderWay mark(table_, entry.under_way);
    const Unlocked gap(table_);
    run_untracked(entry.call->node(), [&] { status = entry.call->follow(block); });
  }
  if (!status.ok()) return status;
  recomputed_.fetch_add(1, std::memory_order_relaxed);
  std::unique_ptr<RecordedCall> call = std::move(entry.call);
  discarded_.erase(&block);
  release_inputs(block, *call);
  const Unlocked gap(table_);  // Blocks may end with the call.
  call = nullptr;
  return {};
}

void Recomputer::run_untracked(NodeId id, const std::function<void()>& run) {
  const Untracked untracked;
  const Node& at = table_.node(id);
  double& seconds = thread_state().recomputed_seconds[index_of(id)];
  const double before = at.time == nullptr ? 0 : at.time().kernels - seconds;
  run();
  if (at.time != nullptr)
    seconds = at.time().kernels - before;  // Recorded calls that this one needed count, too.
}

Status Recomputer::refill(Block& block, Block& made, NodeId id) {
  if (made.size() != block.size()) {
    return Status(Code::device_failed, "an operator that made " + to_string(block.size()) + " makes " +
                                           to_string(made.size()) + " of the same now");
  }
  Access access{.block = &made, .write = true};
  const NodeAdmission admission(table_, id, made.size());
  IK_RETURN_IF_ERROR(operands_.acquire(id, std::span(&access, 1)));
  Replica& source = made.replica(id);
  Replica& target = block.replica(id);
  TableLock lock(table_);
  while (block.is_moving() || made.is_moving()) table_.wait_change();
  table_.leave_nursery(made);
  table_.unlist(made, id);
  target.memory = std::move(source.memory);
  source.word.be_gone();
  const BlockMovingScope move(table_, block);
  table_.observe(made, id, nullptr);
  table_.observe(block, id, target.memory.data());
  table_.touched(target);
  const TableLock again(table_);
  target.transition(ReplicaEvent::born);
  table_.list(block, id);
  block.discarded.store(false, std::memory_order_relaxed);
  return {};
}

void Recomputer::forget(Block& block) {
  std::unique_ptr<RecordedCall> call;  // Ends after the lock: blocks may end with it.
  TableLock lock(table_);
  auto found = discarded_.find(&block);
  while (found != discarded_.end() && found->second.under_way) {
    table_.wait_change();
    found = discarded_.find(&block);
  }
  if (found == discarded_.end()) return;
  call = std::move(found->second.call);
  discarded_.erase(found);
  release_inputs(block, *call);
}

}  // namespace innkeeper
