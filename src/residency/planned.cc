// What is planned moves here: at each operator's end the planner hears what its thread wrote to the stream,
// and what it orders is carried out, by the thread whose operator that was. Nothing here waits for room or
// for another thread's move: what cannot be done at once is left to the operator that needs it.
#include <algorithm>
#include <new>
#include <utility>

#include "base/heap_reserve.h"
#include "base/log.h"
#include "residency/engine.h"
#include "residency/moving.h"
#include "residency/thread_state.h"

namespace innkeeper {

void Engine::set_planning(bool on) {
  may_plan_.store(on, std::memory_order_seq_cst);
  if (on) return;
  follows_.store(false, std::memory_order_relaxed);
  for (const NodeId each : computing_) node(each).unplanned.store(0, std::memory_order_relaxed);
  trackers_.interrupt();
}

// Periods that are known are planned again.
void Engine::set_recompute(bool on) {
  may_drop_.store(on, std::memory_order_relaxed);
  trackers_.interrupt();
}

namespace {

// Of a period; 0 where the times of its kernels are unknown.
double least_time(double kernels, double copying) { return kernels > 0 ? std::max(kernels, copying) : 0; }

}  // namespace

PlanningStats Engine::planning() const {
  PlanningStats all;
  const ProgramTracker* const shown = trackers_.shown_to(thread_state());
  for (const ProgramTracker& tracker : trackers_.all()) {
    const MutexLock lock(tracker.mutex);
    if (tracker.planner == nullptr) continue;
    const plan::Planner& planner = *tracker.planner;
    all.follows = all.follows || (planner.follows() && may_plan_.load(std::memory_order_relaxed));
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

std::vector<BlockMoves> Engine::planned_moves() const {
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

// Bytes that programs' blocks may have at a node between them: all but what kernels keep there, and users
// of what the planner does not know.
Bytes Engine::plannable(NodeId id) {
  const Node& at = node(id);
  if (backing(at) == kNoNode || at.device->is_lost()) return Bytes(0);
  const MutexLock lock(mutex_);
  drain_nursery();
  Bytes blocks = at.replica_bytes + at.promises.total();  // also those that are arriving, and have left
  for (const Leaving& parked : at.leaving) blocks += round_up(parked.memory.size());
  const Bytes kernels = std::max(Bytes(at.used.load(std::memory_order_relaxed)) - blocks, Bytes(0));
  Bytes unknown{0};
  for (const auto& [block, pins] : pinned_at_) {
    if (block->name_.load(std::memory_order_relaxed) == 0 &&
        std::any_of(pins.begin(), pins.end(), [id](const Pin& pin) { return pin.node == id; }))
      unknown += round_up(block->size());
  }
  return budget(id) - kernels - unknown;
}

// The name that the tracker's planner has for a block, which it takes over from another one if it must. 0:
// it stays another's.
plan::Name Engine::name_of(ProgramTracker& tracker, Block& block) {
  int64_t packed = block.name_.load(std::memory_order_acquire);
  const BlockName before(packed);
  const int64_t program = tracker.program.load(std::memory_order_relaxed);
  if (before.program() == program) [[likely]]
    return before.name();
  const auto take = [&](int64_t times) IK_REQUIRES(tracker.mutex) -> plan::Name {
    const plan::Name name = tracker.planner->meet(&block);
    if (block.name_.compare_exchange_strong(packed, BlockName(program, name, times).packed())) return name;
    tracker.planner->forget(name);  // another one was faster
    return 0;
  };
  ProgramTracker* const owner = before.none() ? nullptr : trackers_.of_program(before.program());
  if (owner == nullptr) return take(0);
  if (before.times() == BlockName::kMostTimes && !owner->is_over()) return 0;
  if (!owner->mutex.try_lock()) return 0;  // not waited for: it may be waiting for this one's lock
  const plan::Name name = take(std::min(before.times() + 1, BlockName::kMostTimes));
  if (name != 0 && owner->program.load(std::memory_order_relaxed) == before.program())
    owner->planner->forget(before.name());
  owner->mutex.unlock();
  return name;
}

// A program is as well off without plans: where there is no memory for them it goes on without.
void Engine::follow_if_memory_allows(NodeId id, const trace::Accesses& told,
                                     std::span<const Access> accesses) {
  if (!heap_reserve_ready().ok()) return;
  try {
    follow(id, told, accesses);
  } catch (const std::bad_alloc&) {
    may_plan_.store(false, std::memory_order_seq_cst);
    follows_.store(false, std::memory_order_relaxed);
    // What its planner knows may be half of it: no block is its any more.
    if (ProgramTracker* const tracker = trackers_.of_thread(thread_state())) tracker->program.store(0);
    log(LogLevel::warn, "planning is off from here on: there is no memory for it");
  }
}

// What the stream has been told, of the blocks of `accesses`.
void Engine::follow(NodeId id, const trace::Accesses& told, std::span<const Access> accesses) {
  if (!may_plan_.load(std::memory_order_relaxed)) {
    follows_.store(false, std::memory_order_relaxed);  // who evicted just then had set it again
    return;
  }
  ThreadState& self = thread_state();
  const Stamp now = now_.load(std::memory_order_relaxed);
  ProgramTracker* place = trackers_.of_thread(self);
  if (place == nullptr) [[unlikely]] {
    place = trackers_.give_place(
        self, now,
        [this](const ProgramTracker& whose, NodeId each) {
          return trackers_.part(whose, each, plannable(each), now_.load(std::memory_order_relaxed));
        },
        [this](NodeId each) {
          return plan::AboutNode{device(each).name(), node(each).speed(), recomputes(),
                                 disk_ == kNoNode ? kNoNode : host_};
        });
  }
  if (place == nullptr) return;
  ProgramTracker& tracker = *place;
  std::vector<std::unique_ptr<RecordedCall>> unused;  // blocks may end with them, and tell the planner
  const MutexLock lock(tracker.mutex);
  // Its place may have been given to another thread meanwhile, or planning turned off.
  if (!tracker.is_of(self) || !may_plan_.load(std::memory_order_seq_cst)) return;
  tracker.last.store(now, std::memory_order_relaxed);
  tracker.last_at[index_of(id)].store(now, std::memory_order_relaxed);
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
  if (tracker.touches.empty()) return;
  plan::Planner& planner = *tracker.planner;
  std::atomic<int64_t>& others = node(id).unplanned;
  int64_t unplanned = std::exchange(self.unplanned[index_of(id)], 0);
  if (others.load(std::memory_order_relaxed) != 0) unplanned += others.exchange(0, std::memory_order_relaxed);
  if (unplanned != 0) planner.unplanned(id, Bytes(unplanned));
  const int64_t periods = planner.periods();
  double seconds = 0;
  double clock = 0;
  double host = 0;
  if (node(id).time != nullptr) {
    const ComputeTime time = node(id).time();
    if (!trackers_.others_at(id, self, now)) clock = time.now;
    const double recomputed = std::exchange(self.recomputed[index_of(id)], 0);
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
  tracker.may_drop_next.store(planner.may_drop_next(), std::memory_order_relaxed);
  if (planner.has_left()) cancel_planned(tracker.program.load(std::memory_order_relaxed));
  if (planner.working_set().changed()) {
    for (const auto& at : nodes_)
      tracker.demand[index_of(at->id)].store(planner.working_set().at(at->id).count(),
                                             std::memory_order_relaxed);
  }
  for (plan::Order order; planner.next(order);) {
    if (order.drops) {
      std::unique_ptr<RecordedCall> call;
      if (drop(*order.block, order.node, call)) continue;
      if (call != nullptr) unused.push_back(std::move(call));
    }
    if (!order.arrives) {
      leave_as_planned(*order.block, order.node);
    } else if (!arrive_as_planned(*order.block, order.node)) {
      planner.postpone();
    }
  }
}

bool Engine::may_drop_next() {
  if (stream_->on()) return true;
  const ProgramTracker* const tracker = trackers_.of_thread(thread_state());
  return tracker == nullptr || tracker->may_drop_next.load(std::memory_order_relaxed);
}

// The program has left its plan: its planned moves that have no copy yet give up their room.
void Engine::cancel_planned(int64_t program) {
  const NeedsHeap books;
  if (under_way_.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(mutex_);
  const auto is_its = [&](const Move& move) IK_REQUIRES(mutex_) {
    const BlockName name(move.block->name_.load(std::memory_order_relaxed));
    return name.program() == program && !is_moving(*move.block);
  };
  for (const NodeId each : computing_) {
    while (const MovePtr move = node(each).in.take_last_planned(is_its)) {
      const MoveScope scope(*this, *move->block);
      drop_replica(*move->block, move->to);
    }
  }
  count_under_way();
}

// Of the node that took most; kernels less those that made again what was dropped.
ComputeTime Engine::time_since_period_before(ProgramTracker& tracker) const {
  ComputeTime taken;
  for (const NodeId each : computing_) {
    if (node(each).time == nullptr) continue;
    const ComputeTime now = node(each).time();
    const ComputeTime then = std::exchange(tracker.time_before[index_of(each)], now);
    taken.now = std::max(taken.now, now.now - then.now);
    const double again = std::exchange(tracker.recomputed_in_period[index_of(each)], 0);
    taken.kernels = std::max(taken.kernels, now.kernels - then.kernels - again);
  }
  return taken;
}

void Engine::forget(BlockName name) {
  ProgramTracker* const tracker = trackers_.of_program(name.program());
  if (tracker == nullptr) return;
  const MutexLock lock(tracker->mutex);
  if (tracker->program.load(std::memory_order_relaxed) == name.program())
    tracker->planner->forget(name.name());
}

void Engine::leave_as_planned(Block& block, NodeId id) {
  const NeedsHeap books;
  MutexLock lock(mutex_);
  Replica& replica = block.replica(id);
  if (is_moving(block) || !is_valid(replica.word.state()) || !replica.word.close_if_unpinned()) return;
  const MoveScope move(*this, block);
  // Room is made below, but others are not waited for: their operators may be about to tell the planner.
  // Where it fails the block stays, as it was.
  (void)leave(node(id), block, true, Reserve::may_evict);
}

// False: there is no room yet.
bool Engine::arrive_as_planned(Block& block, NodeId id) {
  const NeedsHeap books;
  MutexLock lock(mutex_);
  if (is_moving(block) || block.replica(id).word.state() != ReplicaState::absent) return true;
  if (free(id) < round_up(block.size())) return false;
  const NodeId from = source_of(block, id);
  if (from == kNoNode || (id == host_ && from != disk_)) return true;
  const MoveScope move(*this, block);
  return fetch(block, id, kPlanned).code() != Code::busy;
}

}  // namespace innkeeper
