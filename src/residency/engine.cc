#include "residency/engine.h"

#include <utility>

#include "base/heap_reserve.h"

namespace innkeeper {

Engine::Engine(std::vector<NodeSetup> nodes, std::unique_ptr<EvictionPolicy> policy)
    : table_(std::move(nodes), std::move(policy)),
      ledger_(table_),
      pins_(table_),
      mover_(table_, pins_, trackers_),
      evictor_(table_, ledger_, pins_, trackers_, mover_),
      operands_(table_, ledger_, pins_, mover_),
      recomputer_(table_, operands_, mover_.release()),
      plans_(table_, ledger_, pins_, trackers_, evictor_, mover_, recomputer_),
      requests_(table_, pins_, mover_, evictor_, recomputer_) {
  mover_.set_space_source(evictor_);
  for (const auto& node : table_.nodes()) node->device->attach(node->id, &evictor_);
}

Engine::~Engine() {
  mover_.thread().stop();
  table_.free_parked();
}

void Engine::set_observers(Observers observers) {
  if (observers.memory) table_.set_observer(std::move(observers.memory));
  if (observers.escapes) pins_.set_probe(std::move(observers.escapes));
  if (observers.copies) mover_.transfers().set_watch(std::move(observers.copies));
  if (observers.recorded_calls) recomputer_.set_index(std::move(observers.recorded_calls));
}

Status Engine::set_budget(NodeId node, Bytes budget) {
  if (budget < ledger_.budget(node) && budget > Bytes(0)) recomputer_.recompute_while_possible();
  return evictor_.set_budget(node, budget);
}

Block::Space Engine::destroy(Block* block) {
  const NeedsHeap books;
  plans_.forget(*block);  // First: a plan discards the block no more.
  if (block->discarded.load(std::memory_order_relaxed)) [[unlikely]]
    recomputer_.forget(*block);
  return operands_.destroy(block);
}

// ---------------------------------------------------------------- operators

void Engine::release(NodeId node, std::span<Access> accesses, const trace::Operation& operation) {
  {
    const NeedsHeap books;
    operands_.release_pins(node, accesses);
    mover_.advance();
    Node& at = table_.node(node);
    if (at.ahead.load(std::memory_order_relaxed) > 0) [[unlikely]]
      evictor_.write_back_ahead(at);
  }
  if (plans_.is_heard()) [[unlikely]]
    plans_.observe(node, accesses, operation);
}

Status Engine::pin_async(NodeId node, std::span<Access> accesses) {
  for (Status status = acquire(node, accesses); !status.ok(); status = acquire(node, accesses)) {
    if (status.code() != Code::discarded) return status;
    IK_RETURN_IF_ERROR(recomputer_.recompute(accesses));
  }
  TableLock lock(table_);
  ++table_.node(node).moving;
  return {};
}

void Engine::unpin_async(NodeId node, std::span<Access> accesses) {
  release(node, accesses);
  TableLock lock(table_);
  --table_.node(node).moving;
  table_.notify();
}

// ---------------------------------------------------------------- observation

Stats Engine::stats() {
  Stats stats;
  stats.fetches = mover_.fetches();
  stats.evictions = evictor_.evictions();
  stats.recomputed = recomputer_.recomputed();
  mover_.transfers().count_into(stats);
  const PlanningStats planned = plans_.planning();
  stats.planned_periods = planned.periods;
  stats.divergences = planned.divergences;
  stats.period = planned.period;
  TableLock lock(table_);
  table_.drain_nursery();
  pins_.poll_escapes();
  stats.escaped = static_cast<int64_t>(pins_.escapes());
  for (const auto& at : table_.nodes()) {
    mover_.release().reclaim(*at);
    NodeStats& row = stats.nodes[at->device->name()];
    row = glance(at->id);
    row.replicas = at->replica_bytes.count();
    row.pinned = ledger_.pinned_bytes(*at).count();
    row.recount = at->device->live().count();
    stats.ops += row.ops;
  }
  return stats;
}

NodeStats Engine::glance(NodeId node) const {
  const Node& at = table_.node(node);
  NodeStats row;
  row.budget = at.budget.load(std::memory_order_relaxed);
  row.resident = at.used.load(std::memory_order_relaxed) - at.promises.total().count();
  row.peak = at.peak.load(std::memory_order_relaxed);
  row.evictions = at.evictions.load(std::memory_order_relaxed);
  row.ops = at.ops.load(std::memory_order_relaxed);
  return row;
}

void Engine::reset_peak(NodeId node) {
  Node& at = table_.node(node);
  at.peak.store(at.used.load());
}

void Engine::reset_stats() {
  mover_.reset_counts();
  evictor_.reset_counts();
  recomputer_.reset_counts();
  plans_.reset_counts();
  for (const auto& at : table_.nodes()) {
    reset_peak(at->id);
    at->ops.store(0);
    at->evictions.store(0);
  }
}

Status Engine::synchronize() {
  // A move by way of the host goes on from there: at most from one accelerator to the host, to the disk and
  // back, to another accelerator. Moves of another thread's blocks are not waited for.
  constexpr int kMostHops = 5;
  for (int hops = 0; hops < kMostHops; ++hops) {
    mover_.issue_waiting();
    for (const auto& at : table_.nodes()) {
      if (!at->device->is_lost()) IK_RETURN_IF_ERROR(at->device->synchronize());
    }
    if (!table_.signal().is_needed()) break;
    size_t rounds = 0;
    {
      TableLock lock(table_);
      rounds = mover_.rounds();
    }
    for (; rounds > 0; --rounds) mover_.advance();
  }
  TableLock lock(table_);
  for (const auto& at : table_.nodes()) {
    mover_.release().reclaim(*at);
    // Events are asked while their devices can answer: a device that is lost later takes none of this back.
    for (Block* block = at->first; block != nullptr; block = block->replica(at->id).next) {
      const Replica& replica = block->replica(at->id);
      if (!block->is_moving()) (void)is_done(replica.copies.into());
    }
  }
  return {};
}

Bytes Engine::trim() {
  Bytes given{0};
  for (const auto& at : table_.nodes()) given += at->device->trim();
  return given;
}

}  // namespace innkeeper
