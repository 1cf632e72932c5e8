#include "residency/evictor.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/heap_reserve.h"
#include "base/log.h"
#include "base/test_point.h"
#include "residency/block/sources.h"
#include "residency/movement/moving_scopes.h"

namespace innkeeper {

namespace {

// A peer keeps 1/4 of its budget free for its own operators.
constexpr int64_t kPeerReserve = 4;

}  // namespace

// The goals of make_room(): how many bytes are missing, and what to do where this thread alone can free no
// more.

// `size` bytes for an operator: what its charge and its relief have in common.
class Evictor::OperatorGoal {
 public:
  bool others_may_free() const IK_REQUIRES(engine_mutex) { return evictor_.others_may_free(node_, mode_); }
  Status wait() const IK_REQUIRES(engine_mutex) {
    if (mode_ == Reserve::may_evict)
      return Status(Code::busy, "other operators hold the memory at " + node_.device->name());
    evictor_.ledger_.wait_for_memory(node_);  // A kernel waits where it is: it may have written already (I9).
    return {};
  }
  Status refusal() const IK_REQUIRES(engine_mutex) { return evictor_.ledger_.out_of_memory(node_, size_); }

 protected:
  OperatorGoal(Evictor& evictor, Node& node, Bytes size, Reserve mode)
      : evictor_(evictor), node_(node), size_(size), mode_(mode) {}

  Evictor& evictor_;
  Node& node_;
  const Bytes size_;
  const Reserve mode_;
};

// A charge.
class Evictor::ChargeGoal : public OperatorGoal {
 public:
  ChargeGoal(Evictor& evictor, Node& node, Bytes size, Reserve mode)
      : OperatorGoal(evictor, node, size, mode) {}

  bool is_reached() const { return Ledger::try_charge(node_, size_); }
  Bytes shortfall() const {
    return Bytes(node_.used.load(std::memory_order_relaxed)) + size_ -
           Bytes(node_.budget.load(std::memory_order_relaxed));
  }
  // Tells the planner, and the writes ahead, that operators had to evict without a plan.
  void count_eviction(Bytes shortfall) const {
    ThreadState& self = thread_state();
    if (evictor_.trackers_.of_thread(self) != nullptr) {
      self.unplanned[index_of(node_.id)] += shortfall.count();
    } else {
      node_.unplanned.fetch_add(shortfall.count(), std::memory_order_relaxed);
    }
    if (node_.kind == NodeKind::host && evictor_.table_.disk() != kNoNode)
      node_.ahead.fetch_add(shortfall.count(), std::memory_order_relaxed);
  }
  void took(Step) const {}
};

// Any memory that comes free at a device which has none for bytes that are charged.
class Evictor::ReliefGoal : public OperatorGoal {
 public:
  ReliefGoal(Evictor& evictor, Node& node, Bytes size, Reserve mode)
      : OperatorGoal(evictor, node, size, mode), used_before_(node.used.load()) {}

  bool is_reached() const { return freed_ || node_.used.load() < used_before_; }
  Bytes shortfall() const { return size_; }
  void count_eviction(Bytes) const {}  // The planner hears of budgets alone.
  void took(Step step) { freed_ = freed_ || step == Step::freed; }

 private:
  const int64_t used_before_;
  bool freed_ = false;
};

// A budget below the bytes that are in use. The new budget is in force already.
class Evictor::BudgetGoal {
 public:
  BudgetGoal(Evictor& evictor, Node& node, Bytes wanted) : evictor_(evictor), node_(node), wanted_(wanted) {}

  bool is_reached() const { return shortfall() <= Bytes(0); }
  Bytes shortfall() const { return Bytes(node_.used.load()) - wanted_; }
  void count_eviction(Bytes) const {}
  void took(Step) const {}
  bool others_may_free() const IK_REQUIRES(engine_mutex) { return evictor_.table_.others_move(node_); }
  Status wait() const IK_REQUIRES(engine_mutex) {
    evictor_.table_.wait_change();
    return {};
  }
  Status refusal() const IK_REQUIRES(engine_mutex) {
    return Status(Code::out_of_memory, "a budget of " + to_string(wanted_) + " for " + node_.device->name() +
                                           " is less than the " + to_string(Bytes(node_.used.load())) +
                                           " in use there that cannot leave now (" +
                                           to_string(evictor_.ledger_.pinned_bytes(node_)) + " pinned)");
  }

 private:
  Evictor& evictor_;
  Node& node_;
  const Bytes wanted_;
};

template <class Goal>
Status Evictor::make_room(Node& node, Goal& goal, Reserve mode) {
  Status landing;
  bool alone = false;  // After the step before, no other thread could free memory.
  while (!goal.is_reached()) {
    table_.drain_nursery();
    const Bytes shortfall = goal.shortfall();
    if (shortfall <= Bytes(0)) continue;  // Memory was freed meanwhile.
    const auto count = [&] { goal.count_eviction(shortfall); };
    const Result<Taken> taken = step(node, shortfall, mode, count, landing);
    if (!taken.ok()) return goal.is_reached() ? Status() : taken.status();
    const auto& [step, failure] = taken.value();
    goal.took(step);
    if (step != Step::none) {
      alone = false;
      continue;
    }
    if (goal.is_reached()) break;  // A thread that moved bytes may have ended just before it was looked for.
    if (goal.others_may_free()) {
      alone = false;
      IK_RETURN_IF_ERROR(goal.wait());
    } else if (std::exchange(alone, true)) {
      return failure.ok() ? goal.refusal() : failure;
    }  // Else another thread may have ended since the step, and left victims.
  }
  return {};
}

bool Evictor::others_may_free(const Node& node, Reserve mode) const {
  if (table_.others_move(node) || node.budget_changes) return true;
  if (mode == Reserve::may_evict) return Ledger::others_run(node);  // An operator that gives up begins again.
  return !ledger_.all_wait(node);  // If every operator at the node waits, no thread frees memory.
}

// Memory that frees itself soon is waited for only after the victims: a victim that leaves at once is faster.
// Memory that is vacating is no victim's to free again.
template <class Count>
Result<Evictor::Taken> Evictor::step(Node& node, Bytes shortfall, Reserve mode, const Count& count_eviction,
                                     Status& landing) {
  if (mover_.release().reclaim(node)) return Taken{Step::freed, {}};
  const Bytes vacating = mover_.landing_soon(node);
  std::vector<Block*> victims;
  if (shortfall > vacating && landing.ok()) victims = collect_victims(node, shortfall - vacating);
  Status failure;
  if (!victims.empty()) {
    const Unlocked gap(table_);
    failure = evict_some(node, std::move(victims), shortfall - vacating, mode);
    if (failure.ok()) {
      count_eviction();
      return Taken{Step::freed, {}};
    }
    if (failure.code() != Code::out_of_memory && failure.code() != Code::busy) return failure;
  }
  if (mover_.landing_soon(node) != Bytes(0)) {
    const Status landed = mover_.wait_landing(node);
    if (landed.ok()) return Taken{Step::freed, {}};
    if (landing.ok()) landing = landed;
    return Taken{Step::unblocked, {}};
  }
  if (!landing.ok()) return landing;
  if (pins_.poll_escapes() || mover_.cancel_last_waiting(node)) return Taken{Step::unblocked, {}};
  if (mover_.release().wait_parked(node)) return Taken{Step::freed, {}};
  if (test_points_on()) [[unlikely]] {
    const Unlocked gap(table_);
    reach("nothing leaves");
  }
  return Taken{Step::none, failure};
}

// ---------------------------------------------------------------- requests

Status Evictor::charge(NodeId id, Bytes size) {
  Node& at = table_.node(id);
  size = round_up(size);
  ArmedReservation* const armed = ArmedReservation::current();
  if (armed == nullptr || armed->reservation().node() != id) [[likely]] {
    return ledger_.try_charge(at, size) ? Status() : charge_slowly(at, size, Reserve::may_wait);
  }
  const Bytes promised = armed->reservation().take(size);
  if (promised == size || ledger_.try_charge(at, size - promised)) return {};
  Status status = charge_slowly(at, size - promised, armed->reservation().mode());
  if (status.ok()) return status;
  at.used.fetch_sub(promised.count(), std::memory_order_acq_rel);
  if (status.code() == Code::busy) armed->refuse();
  return status;
}

Result<Reservation> Evictor::reserve(NodeId id, Bytes size, Reserve mode) {
  Node& at = table_.node(id);
  size = round_up(size);
  if (!ledger_.try_charge(at, size)) IK_RETURN_IF_ERROR(charge_slowly(at, size, mode));
  return Reservation(id, size, mode, at.used, at.promises);
}

void Evictor::uncharge(NodeId id, Bytes size) noexcept { ledger_.uncharge(id, size); }

Status Evictor::charge_slowly(Node& node, Bytes size, Reserve mode) {
  if (mode == Reserve::free_only) return Status(Code::busy, "no free memory at " + node.device->name());
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  TableLock lock(table_);
  while (size > Bytes(node.budget.load(std::memory_order_relaxed))) {
    table_.drain_nursery();
    if (!node.budget_changes) return ledger_.out_of_memory(node, size);
    if (mode == Reserve::may_evict)
      return Status(Code::busy, "another thread changes the budget of " + node.device->name());
    ledger_.wait_for_memory(node);
  }
  // A thread must see every block before it reports that a node has no free memory: from here on a result
  // that is born at the node waits for the lock before its operator ends (Operands::adopt).
  node.tight.store(true, std::memory_order_seq_cst);
  ChargeGoal goal(*this, node, size, mode);
  return make_room(node, goal, mode);
}

Status Evictor::set_budget(NodeId id, Bytes wanted) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  Node& at = table_.node(id);
  if (wanted <= Bytes(0)) return Status(Code::invalid_argument, "a budget is a positive number of bytes");
  TableLock lock(table_);
  while (at.budget_changes) table_.wait_change();
  struct Change {  // Keeps the budget before, unless it ends well; after an exception, too.
    explicit Change(Node& node, Bytes wanted) : at(node), before(node.budget.exchange(wanted.count())) {
      at.budget_changes = true;
    }
    ~Change() {
      if (!done) at.budget.store(before);
      at.budget_changes = false;
    }
    Node& at;
    const int64_t before;
    bool done = false;
  } change(at, wanted);
  BudgetGoal goal(*this, at, wanted);
  IK_RETURN_IF_ERROR(make_room(at, goal, Reserve::may_wait));
  at.device->set_limit(wanted);
  change.done = true;
  return {};
}

Status Evictor::relieve(NodeId id, Bytes size) {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  Node& at = table_.node(id);
  ArmedReservation* armed = ArmedReservation::current();
  if (armed != nullptr && armed->reservation().node() != id) armed = nullptr;
  // An operator that still gathers its operands must not wait with their pins.
  const bool gathers = armed != nullptr && armed->reservation().mode() != Reserve::may_wait;
  const Reserve mode = gathers ? Reserve::may_evict : Reserve::may_wait;
  TableLock lock(table_);
  if (size <= Bytes(0)) return ledger_.out_of_memory(at, size);  // Nothing leaves for no bytes.
  ReliefGoal goal(*this, at, size, mode);
  const Status status = make_room(at, goal, mode);
  if (status.code() == Code::busy && gathers) armed->refuse();
  if (!status.ok()) return status;
  return mover_.landing_soon(at) != Bytes(0) ? mover_.wait_landing(at) : Status();
}

Status Evictor::evict_all() {
  IK_RETURN_IF_ERROR(heap_reserve_ready());
  const NeedsHeap books;
  for (const auto& at : table_.nodes()) {
    if (at->kind == NodeKind::disk || table_.backing(*at) == kNoNode) continue;
    std::vector<Block*> victims;
    {
      TableLock lock(table_);
      pins_.poll_escapes();
      table_.drain_nursery();
      victims = collect_victims(*at, Bytes(INT64_MAX));
    }
    if (!victims.empty())
      IK_RETURN_IF_ERROR(evict_victims(*at, std::move(victims), false, Reserve::may_wait));
    TableLock lock(table_);
    while (mover_.landing_soon(*at) != Bytes(0)) IK_RETURN_IF_ERROR(mover_.wait_landing(*at));
  }
  return {};
}

// ---------------------------------------------------------------- victims

// Whether the block can leave the node without a copy. The inputs of a discarded block are shared even where
// they have no other replica (Block::feeds_discarded).
bool Evictor::is_spare(const Block& block, NodeId id) const {
  const ReplicaState state = block.replica(id).word.state();
  return state == ReplicaState::shared &&
         (!block.feeds_discarded() || source_of(table_, block, id) != kNoNode);
}

bool Evictor::take_as_victim(Block& block, NodeId id) {
  if (block.is_moving() || !block.replica(id).word.close_if_unpinned()) return false;
  table_.begin_move(block);
  return true;
}

std::vector<Block*> Evictor::collect_victims(Node& node, Bytes shortfall, Bytes most) {
  if (table_.backing(node) == kNoNode) most = Bytes(-1);
  std::vector<Block*> victims;
  std::vector<Block*> arriving;  // Last choice: a request of the program brings them.
  std::vector<Block*> staying;
  Bytes found{0};
  const auto take = [&](Block* block) IK_REQUIRES(engine_mutex) {
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
      // On a disk an arriving block is on its way out of another node, where an operator waits for its
      // memory.
      (node.kind == NodeKind::disk ? staying : arriving).push_back(block);
    } else if (block->size() > most && !is_spare(*block, node.id)) {
      staying.push_back(block);
    } else {
      take(block);
    }
  }
  for (Block* block : arriving) take(block);
  const Stamp now = table_.now();
  for (Block* block : staying) node.index->add_as_used(*block, now);
  return victims;
}

// Evicts some of these, or other victims of `size` bytes: where the backing node has no memory for a victim
// it stays, and smaller ones leave, or spares.
Status Evictor::evict_some(Node& node, std::vector<Block*> victims, Bytes size, Reserve mode) {
  Status first;
  while (!victims.empty()) {
    Bytes least{INT64_MAX};
    for (const Block* block : victims) least = std::min(least, block->size());
    const Status status = evict_victims(node, std::move(victims), true, mode);
    if (status.ok() || status.code() != Code::out_of_memory || table_.backing(node) == kNoNode) return status;
    if (first.ok()) first = status;
    TableLock lock(table_);
    victims = collect_victims(node, size, std::min(least - Bytes(1), ledger_.free(table_.backing(node))));
  }
  return first;
}

// Spares leave first, since they need no memory elsewhere. The others may have to wait for it, and a thread
// at the node of a spare's other replica must not wait for them meanwhile.
Status Evictor::evict_victims(Node& node, std::vector<Block*> victims, bool peers, Reserve mode) {
  {
    const TableLock lock(table_);
    std::stable_partition(victims.begin(), victims.end(), [&](const Block* block) IK_REQUIRES(engine_mutex) {
      return block->replica(node.id).word.state() == ReplicaState::arriving || is_spare(*block, node.id);
    });
  }
  const NodeMovingScope moving(table_, node);
  struct Moves {  // Ends the moves that are left, even after an exception.
    ~Moves() {
      TableLock lock(table);
      for (Block* block : left) table.end_move(*block);
    }
    BlockTable& table;
    std::span<Block*> left;
  } moves{table_, victims};
  Status failure;
  bool any = false;
  for (Block* block : victims) {
    reach("victim");
    Status status = evict(node, *block, peers, mode);
    TableLock lock(table_);
    table_.end_move(*block);
    moves.left = moves.left.subspan(1);
    if (status.ok()) {
      any = true;
    } else if (failure.ok()) {
      failure = status;
    }
  }
  return any ? Status() : failure;
}

Status Evictor::evict(Node& node, Block& block, bool peers, Reserve mode) {
  Replica& replica = block.replica(node.id);
  if (replica.word.state() == ReplicaState::shared && source_of(table_, block, node.id) == kNoNode) {
    // The only other replicas are being filled from this one: one must have arrived first (I1).
    for (const auto& at : table_.nodes()) {
      if (block.replica(at->id).word.state() != ReplicaState::arriving) continue;
      Status arrived = mover_.finish_arrival(block, at->id);
      if (arrived.ok()) break;
    }
  }
  if (source_of(table_, block, node.id) == kNoNode && replica.word.state() != ReplicaState::arriving) {
    Status copied = peers ? copy_to_peer(block, node) : Status(Code::busy, "");
    const NodeId to = table_.backing(node);
    if (!copied.ok() && to == kNoNode) {
      copied = Status(Code::out_of_memory, "there is no node below " + node.device->name());
    } else if (!copied.ok()) {
      copied = mover_.start_move(block, node.id, to, {mode, Priority::demand}, /*leaves=*/true);
    }
    if (!copied.ok()) {
      replica.reopen();
      return copied;
    }
    if (replica.vacating) {
      replica.reopen();  // Operators may read it until it leaves.
      return {};
    }
  }
  finish_eviction(node, block);
  return {};
}

void Evictor::finish_eviction(Node& node, Block& block) {
  mover_.release().drop_replica(block, node.id);
  if (log_enabled(LogLevel::info)) {
    log(LogLevel::info, "evict block " + std::to_string(static_cast<uint64_t>(block.id())) + " (" +
                            to_string(block.size()) + ") from " + node.device->name());
  }
  if (table_.backing(node) != kNoNode) trackers_.start_following();
  node.evictions.fetch_add(1, std::memory_order_relaxed);
  evictions_.fetch_add(1, std::memory_order_relaxed);
}

// An accelerator with plenty of free memory takes victims of another one: that link is faster than the
// host's. The copy takes free memory only, since two accelerators that evict for each other could do so for
// ever. An accelerator where another program runs is left alone: that program needs its free memory soon.
Status Evictor::copy_to_peer(Block& block, const Node& from) {
  if (from.kind != NodeKind::accelerator) return Status(Code::busy, "");
  const ThreadState& self = thread_state();
  const Node* best = nullptr;
  for (const NodeId id : table_.computing()) {
    const Node& peer = table_.node(id);
    const Bytes left = ledger_.free(id) - block.size();
    if (id == from.id || left.count() < peer.budget.load(std::memory_order_relaxed) / kPeerReserve) continue;
    if (trackers_.others_at(id, self, table_.now())) continue;
    if (!peer.device->can_copy_from(*from.device)) continue;
    if (best == nullptr || ledger_.free(id) > ledger_.free(best->id)) best = &peer;
  }
  if (best == nullptr) return Status(Code::busy, "");
  return mover_.start_move(block, from.id, best->id, {Reserve::free_only, Priority::demand}, /*leaves=*/true);
}

// Operators that had to evict will have to evict more. So the next dirty victims are written to the disk
// while it is idle, as many bytes as were evicted: a clean victim leaves at once. Where everything fits
// nothing is evicted, and nothing is written. Ahead of an accelerator's eviction this gains nothing, since
// its copies out run concurrently with kernels (docs/decisions/0009).
void Evictor::write_back_ahead(Node& node) {
  TableLock lock(table_);
  Link& link = table_.node(table_.disk()).in;
  if (node.ahead.load(std::memory_order_relaxed) <= 0 || link.waiting() != 0 ||
      !link.is_free(mover_.link_limits()))
    return;
  std::vector<Block*> looked_at;
  Block* dirty = nullptr;
  while (dirty == nullptr && looked_at.size() < kCleanAhead) {
    Block* const block = node.index->pop(Bytes(node.budget.load(std::memory_order_relaxed)));
    if (block == nullptr) break;
    looked_at.push_back(block);
    const ReplicaWord& word = block->replica(node.id).word;
    if (word.state() == ReplicaState::owned && word.pins() == 0 && !block->is_moving()) dirty = block;
  }
  for (Block* block : looked_at) node.index->add(*block);
  if (dirty == nullptr) return node.ahead.store(0, std::memory_order_relaxed);
  node.ahead.fetch_sub(dirty->size().count(), std::memory_order_relaxed);
  const BlockMovingScope scope(table_, *dirty);
  (void)mover_.start_move(*dirty, node.id, table_.disk(), {Reserve::free_only, Priority::hint},
                          /*leaves=*/false);
}

}  // namespace innkeeper
