#include "residency/plan_executor.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/heap_reserve.h"
#include "base/log.h"
#include "residency/block/sources.h"
#include "residency/movement/moving_scopes.h"

namespace innkeeper {

PlanExecutor::PlanExecutor(BlockTable& table, const Ledger& ledger, const LastingPins& pins,
                           ProgramTrackers& trackers, Evictor& evictor, Mover& mover, Recomputer& recomputer)
    : table_(table),
      ledger_(ledger),
      pins_(pins),
      trackers_(trackers),
      evictor_(evictor),
      mover_(mover),
      recomputer_(recomputer),
      stream_(std::make_shared<trace::Stream>()) {}

void PlanExecutor::set_planning(bool on) {
  trackers_.set_planning(on);
  if (on) return;
  for (const NodeId each : table_.computing())
    table_.node(each).unplanned.store(0, std::memory_order_relaxed);
  trackers_.interrupt();
}

void PlanExecutor::set_recompute(bool on) {
  recomputer_.set_on(on);
  trackers_.interrupt();
}

void PlanExecutor::reset_counts() {
  for (ProgramTracker& tracker : trackers_.all()) {
    const MutexLock lock(tracker.mutex);
    if (tracker.planner != nullptr) tracker.planner->reset_counts();
    tracker.arrived_in_period = 0;
    tracker.in_period = {};
  }
}

namespace {

// Seconds that a period takes at least; 0 where the times of its kernels are unknown.
double least_time(double kernels, double copying) { return kernels > 0 ? std::max(kernels, copying) : 0; }

}  // namespace

PlanningStats PlanExecutor::planning() const {
  PlanningStats all;
  const ProgramTracker* const shown = trackers_.shown_to(thread_state());
  for (const ProgramTracker& tracker : trackers_.all()) {
    const MutexLock lock(tracker.mutex);
    if (tracker.planner == nullptr) continue;
    const plan::Planner& planner = *tracker.planner;
    all.follows = all.follows || (planner.follows() && trackers_.may_plan());
    all.periods += planner.periods();
    all.divergences += planner.divergences();
    if (&tracker != shown) continue;
    const plan::PeriodCost& cost = planner.cost();
    all.period = {.operators = cost.operators,
                  .bytes_planned = cost.arriving.count(),
                  .bytes_bound = cost.bound.count(),
                  .bytes_short = cost.shortage.count(),
                  .bytes_fetched = tracker.arrived_in_period,
                  .seconds = tracker.in_period.now,
                  .kernel_seconds = tracker.in_period.kernels,
                  .seconds_bound = least_time(tracker.in_period.kernels, cost.least_copying)};
  }
  return all;
}

std::vector<BlockMoves> PlanExecutor::planned_moves() const {
  std::vector<BlockMoves> all;
  const ProgramTracker* const shown = trackers_.shown_to(thread_state());
  if (shown == nullptr) return all;
  const MutexLock lock(shown->mutex);
  for (const plan::Moved& moved : shown->planner->moved()) {
    const uint64_t block = moved.block == nullptr ? 0 : static_cast<uint64_t>(moved.block->id());
    all.push_back({block, moved.arriving.count(), moved.leaving.count()});
  }
  return all;
}

bool PlanExecutor::may_discard_next() {
  if (stream_->on()) return true;
  const ProgramTracker* const tracker = trackers_.of_thread(thread_state());
  return tracker == nullptr || tracker->may_discard_next.load(std::memory_order_relaxed);
}

// ---------------------------------------------------------------- following

void PlanExecutor::observe(NodeId id, std::span<const Access> accesses, const trace::Operation& operation) {
  if (Recomputer::is_untracked()) return;
  const trace::Event told = stream_->operation(operation, id, accesses.size(), [accesses](size_t index) {
    using Kind = trace::AccessKind;
    const Access& access = accesses[index];
    const Kind made = access.pure ? Kind::pure : Kind::born;
    const Kind kind = access.born ? made : access.write ? Kind::write : Kind::read;
    return trace::RecordedAccess{access.block->id(), access.block->size(), kind};
  });
  if (trackers_.follows()) follow_if_memory_allows(id, told.accesses, accesses);
}

// Plans are optional: a program for which there is no memory to plan continues without plans.
void PlanExecutor::follow_if_memory_allows(NodeId id, const trace::Accesses& told,
                                           std::span<const Access> accesses) {
  if (!heap_reserve_ready().ok()) return;
  try {
    follow(id, told, accesses);
  } catch (const std::bad_alloc&) {
    trackers_.set_planning(false);
    // The planner may have stopped halfway, so no block is this program's any more.
    if (ProgramTracker* const tracker = trackers_.of_thread(thread_state())) tracker->program.store(0);
    log(LogLevel::warn, "planning is off from here on: there is no memory for it");
  }
}

// The blocks of `accesses` are those that the stream was told of.
void PlanExecutor::follow(NodeId id, const trace::Accesses& told, std::span<const Access> accesses) {
  if (!trackers_.may_plan()) {
    trackers_.stop_following();  // A thread that evicted at that moment had set the flag again.
    return;
  }
  ThreadState& self = thread_state();
  const Stamp now = table_.now();
  ProgramTracker* const place = tracker_of_thread(now);
  if (place == nullptr) return;
  ProgramTracker& tracker = *place;
  std::vector<std::unique_ptr<RecordedCall>> unused;  // Blocks may end with the calls, and tell the planner.
  const MutexLock lock(tracker.mutex);
  // Another thread may have been given the tracker meanwhile, or planning turned off.
  if (!tracker.is_of(self) || !trackers_.may_still_plan()) return;
  tracker.last.store(now, std::memory_order_relaxed);
  tracker.last_at[index_of(id)].store(now, std::memory_order_relaxed);
  hear(tracker, id, told, accesses);
  if (tracker.touches.empty()) return;
  end_operator(tracker, id, now);
  carry_out(*tracker.planner, unused);
}

ProgramTracker* PlanExecutor::tracker_of_thread(Stamp now) {
  ThreadState& self = thread_state();
  if (ProgramTracker* const tracker = trackers_.of_thread(self)) [[likely]]
    return tracker;
  return trackers_.give_place(
      self, now,
      [this](const ProgramTracker& whose, NodeId each) {
        return trackers_.part(whose, each, plannable(each), table_.now());
      },
      [this](NodeId each) {
        return plan::AboutNode{table_.device(each).name(), table_.node(each).speed(), recomputer_.is_on(),
                               table_.disk() == kNoNode ? kNoNode : table_.host()};
      });
}

// Names the operator's accesses for the planner.
void PlanExecutor::hear(ProgramTracker& tracker, NodeId id, const trace::Accesses& told,
                        std::span<const Access> accesses) {
  tracker.touches.clear();
  for (size_t i = 0; i < told.size(); ++i) {
    const trace::RecordedAccess access = told[i];
    if (access.size == Bytes(0)) continue;
    Block& block = *accesses[i].block;
    const plan::Name name = name_of(tracker, block);
    if (name == 0) continue;
    const bool pinned = block.replica(id).user_pins.load(std::memory_order_relaxed) != 0;
    using Kind = trace::AccessKind;
    tracker.touches.push_back(
        {name, access.size, access.kind == Kind::write, pinned, access.kind == Kind::pure});
  }
}

// Tells the planner that the operator has ended, with the bytes that it evicted without a plan and its time.
void PlanExecutor::end_operator(ProgramTracker& tracker, NodeId id, Stamp now) {
  ThreadState& self = thread_state();
  Node& at = table_.node(id);
  plan::Planner& planner = *tracker.planner;
  int64_t unplanned = std::exchange(self.unplanned[index_of(id)], 0);
  if (at.unplanned.load(std::memory_order_relaxed) != 0)
    unplanned += at.unplanned.exchange(0, std::memory_order_relaxed);
  if (unplanned != 0) planner.unplanned(id, Bytes(unplanned));
  const int64_t periods = planner.periods();
  double seconds = 0;
  double clock = 0;
  double host = 0;
  if (at.time != nullptr) {
    const ComputeTime time = at.time();
    if (!trackers_.others_at(id, self, now)) clock = time.now;
    const double recomputed = std::exchange(self.recomputed_seconds[index_of(id)], 0);
    tracker.recomputed_in_period[index_of(id)] += recomputed;
    seconds = time.kernels - recomputed;
    seconds -= std::exchange(tracker.kernels_before[index_of(id)], time.kernels);
    if (const double before = std::exchange(tracker.host_before, time.host); before > 0)
      host = time.host - before;
  }
  planner.ended(id, tracker.touches, {.kernels = seconds, .host = host, .clock = clock},
                Bytes(tracker.arrived.load(std::memory_order_relaxed)));
  if (planner.begins()) {
    const ComputeTime taken = time_since_period_before(tracker);
    const int64_t arrived = tracker.arrived.load(std::memory_order_relaxed);
    if (planner.periods() > periods) {
      const int64_t times = planner.cost().times;
      tracker.arrived_in_period = (arrived - tracker.arrived_before) / times;
      const auto each = static_cast<double>(times);
      tracker.in_period = {taken.now / each, taken.kernels / each};
    }
    tracker.arrived_before = arrived;
  }
  tracker.may_discard_next.store(planner.may_discard_next(), std::memory_order_relaxed);
  if (planner.has_left()) mover_.cancel_planned(tracker.program.load(std::memory_order_relaxed));
  if (planner.working_set().changed()) {
    for (const auto& each : table_.nodes())
      tracker.demand[index_of(each->id)].store(planner.working_set().at(each->id).count(),
                                               std::memory_order_relaxed);
  }
}

void PlanExecutor::carry_out(plan::Planner& planner, std::vector<std::unique_ptr<RecordedCall>>& unused) {
  for (plan::Order order; planner.next(order);) {
    if (order.discards) {
      std::unique_ptr<RecordedCall> call;
      if (recomputer_.discard(*order.block, order.node, call)) continue;
      if (call != nullptr) unused.push_back(std::move(call));
    }
    if (!order.arrives) {
      evict_as_planned(*order.block, order.node);
    } else if (!fetch_as_planned(*order.block, order.node)) {
      planner.postpone();
    }
  }
}

// Bytes of the node that the blocks of all programs may have: the budget less the memory that kernels keep,
// and less the user's pins of blocks that no planner knows.
Bytes PlanExecutor::plannable(NodeId id) {
  const Node& at = table_.node(id);
  if (table_.backing(at) == kNoNode || at.device->is_lost()) return Bytes(0);
  const TableLock lock(table_);
  table_.drain_nursery();
  Bytes blocks = at.replica_bytes + at.promises.total();  // Arriving replicas, and parked memory, included.
  for (const ParkedMemory& parked : at.parked) blocks += round_up(parked.memory.size());
  const Bytes kernels = std::max(Bytes(at.used.load(std::memory_order_relaxed)) - blocks, Bytes(0));
  return ledger_.budget(id) - kernels - pins_.unplanned_at(id);
}

// The name that the tracker's planner has for a block. It takes the block over from another program if it
// must; 0 if the block stays with that program.
plan::Name PlanExecutor::name_of(ProgramTracker& tracker, Block& block) {
  int64_t packed = block.name_.load(std::memory_order_acquire);
  const BlockName before(packed);
  const int64_t program = tracker.program.load(std::memory_order_relaxed);
  if (before.program() == program) [[likely]]
    return before.name();
  const auto take = [&](int64_t times) IK_REQUIRES(tracker.mutex) -> plan::Name {
    const plan::Name name = tracker.planner->meet(&block);
    if (block.name_.compare_exchange_strong(packed, BlockName(program, name, times).packed())) return name;
    tracker.planner->forget(name);  // Another thread named the block first.
    return 0;
  };
  ProgramTracker* const owner = before.none() ? nullptr : trackers_.of_program(before.program());
  if (owner == nullptr) return take(0);
  if (before.times() == BlockName::kMostTimes && !owner->is_over()) return 0;
  if (!owner->mutex.try_lock()) return 0;  // Not waited for: that thread may wait for this tracker's lock.
  const plan::Name name = take(std::min(before.times() + 1, BlockName::kMostTimes));
  if (name != 0 && owner->program.load(std::memory_order_relaxed) == before.program())
    owner->planner->forget(before.name());
  owner->mutex.unlock();
  return name;
}

void PlanExecutor::forget_name(BlockName name) {
  ProgramTracker* const tracker = trackers_.of_program(name.program());
  if (tracker == nullptr) return;
  const MutexLock lock(tracker->mutex);
  if (tracker->program.load(std::memory_order_relaxed) == name.program())
    tracker->planner->forget(name.name());
}

// The time of the node that took longest; recomputed kernels do not count.
ComputeTime PlanExecutor::time_since_period_before(ProgramTracker& tracker) const {
  ComputeTime taken;
  for (const NodeId each : table_.computing()) {
    if (table_.node(each).time == nullptr) continue;
    const ComputeTime now = table_.node(each).time();
    const ComputeTime then = std::exchange(tracker.time_before[index_of(each)], now);
    taken.now = std::max(taken.now, now.now - then.now);
    const double again = std::exchange(tracker.recomputed_in_period[index_of(each)], 0);
    taken.kernels = std::max(taken.kernels, now.kernels - then.kernels - again);
  }
  return taken;
}

// ---------------------------------------------------------------- orders

void PlanExecutor::evict_as_planned(Block& block, NodeId id) {
  const NeedsHeap books;
  TableLock lock(table_);
  Replica& replica = block.replica(id);
  if (block.is_moving() || !is_valid(replica.word.state()) || !replica.word.close_if_unpinned()) return;
  const BlockMovingScope move(table_, block);
  // May free memory at the backing node, but waits for no other thread: its operator may be about to take
  // this tracker's lock. Where the eviction fails the block stays as it was.
  (void)evictor_.evict(table_.node(id), block, true, Reserve::may_evict);
}

// False if the node has no free memory yet.
bool PlanExecutor::fetch_as_planned(Block& block, NodeId id) {
  const NeedsHeap books;
  TableLock lock(table_);
  if (block.is_moving() || block.replica(id).word.state() != ReplicaState::absent) return true;
  if (ledger_.free(id) < round_up(block.size())) return false;
  const NodeId from = source_of(table_, block, id);
  if (from == kNoNode || (id == table_.host() && from != table_.disk())) return true;
  const BlockMovingScope move(table_, block);
  return mover_.fetch(block, id, kPlanned).code() != Code::busy;
}

}  // namespace innkeeper
