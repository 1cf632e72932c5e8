// What can be seen of the engine from outside: statistics and the check of its invariants.
#include <chrono>
#include <thread>

#include "residency/engine.h"

namespace innkeeper {

namespace {

// An allocation or a release of another thread charges at one moment and is alive at another, and asks for no
// lock of the engine's. So a difference is one only if it stays: it is looked for so often, so far apart.
constexpr int kLooks = 200;
constexpr std::chrono::milliseconds kBetweenLooks{1};

}  // namespace

Stats Engine::stats() const {
  Stats stats;
  stats.fetches = fetches_.load();
  stats.evictions = evictions_.load();
  stats.recomputed = recomputed_.load();
  stats.bytes_fetched = bytes_fetched_.load();
  stats.bytes_written_back = bytes_written_back_.load();
  stats.bytes_between = bytes_between_.load();
  stats.bytes_from_disk = bytes_from_disk_.load();
  stats.bytes_to_disk = bytes_to_disk_.load();
  const PlanningStats planned = planning();
  stats.planned_periods = planned.periods;
  stats.divergences = planned.divergences;
  stats.period = planned.period;
  MutexLock lock(mutex_);
  const_cast<Engine*>(this)->drain_nursery();
  const_cast<Engine*>(this)->poll_escapes();
  stats.escaped = static_cast<int64_t>(escaped_.size());
  for (const auto& at : nodes_) {
    const_cast<Engine*>(this)->reclaim(*at);
    NodeStats& row = stats.nodes[at->device->name()];
    row = glance(at->id);
    row.replicas = at->replica_bytes.count();
    row.pinned = pinned_bytes(*at).count();
    row.recount = at->device->live().count();
    stats.ops += row.ops;
  }
  return stats;
}

NodeStats Engine::glance(NodeId id) const {
  const Node& at = node(id);
  NodeStats row;
  row.budget = at.budget.load(std::memory_order_relaxed);
  row.resident = at.used.load(std::memory_order_relaxed) - at.promises.total().count();
  row.peak = at.peak.load(std::memory_order_relaxed);
  row.evictions = at.evictions.load(std::memory_order_relaxed);
  row.ops = at.ops.load(std::memory_order_relaxed);
  return row;
}

void Engine::reset_stats() {
  for (auto* counter : {&fetches_, &evictions_, &recomputed_, &bytes_fetched_, &bytes_written_back_,
                        &bytes_between_, &bytes_from_disk_, &bytes_to_disk_})
    counter->store(0);
  for (ProgramTracker& tracker : trackers_.all()) {
    const MutexLock lock(tracker.mutex);
    if (tracker.planner != nullptr) tracker.planner->reset_counts();
    tracker.arrived_in_period = 0;
    tracker.in_period = {};
  }
  for (const auto& at : nodes_) {
    reset_peak(at->id);
    at->ops.store(0);
    at->evictions.store(0);
  }
}

std::string Engine::check_invariants() const {
  for (int look = 1;; ++look) {
    {
      MutexLock lock(mutex_);
      const_cast<Engine*>(this)->drain_nursery();
      if (std::string broken = check_replicas(); !broken.empty()) return broken;
      std::string broken = check_books();
      if (broken.empty() || look == kLooks) return broken;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

std::string Engine::check_books() const {
  for (const auto& at : nodes_) {
    const std::string& name = at->device->name();
    const Bytes used(at->used.load());
    const Bytes live = at->device->live();
    const Bytes promised = at->promises.total();
    if (used - promised != live) {
      return "I7: " + name + " accounts for " + std::to_string(used.count()) + " bytes, of which " +
             std::to_string(promised.count()) + " are promised, a recount finds " +
             std::to_string(live.count());
    }
    if (used > Bytes(at->budget.load()))
      return "I4: " + name + " uses " + to_string(used) + ", more than its budget";
  }
  return {};
}

std::string Engine::check_replicas() const {
  for (const auto& at : nodes_) {
    const std::string& name = at->device->name();
    Bytes replicas{0};
    Bytes vacating{0};
    for (Block* block = at->first; block != nullptr; block = block->replica(at->id).next) {
      const Replica& replica = block->replica(at->id);
      const std::string what =
          "block " + std::to_string(static_cast<uint64_t>(block->id())) + " at " + name + " ";
      replicas += replica.memory.size();
      if (replica.vacating) vacating += replica.memory.size();
      if (replica.word.state() == ReplicaState::absent) return what + "is listed as resident but absent";
      if (replica.memory && round_up(replica.memory.size()) != round_up(block->size()))
        return what + "has memory of another size";
      if (replica.word.pins() < replica.user_pins + replica.escapes)
        return "I3: " + what + "has fewer pins than promised";
      if (replica.word.writers() != 0 && replica.word.state() != ReplicaState::owned)
        return "I2: " + what + "is being written and " + to_string(replica.word.state());
      if (is_moving(*block)) continue;
      const Move* const move = replica.copies.move();
      if ((move != nullptr) != (replica.word.state() == ReplicaState::arriving))
        return what + "is " + to_string(replica.word.state()) + (move ? " and" : " without") + " a move";
      if (move != nullptr && (move->is_over() || move->to != at->id || move->block != block))
        return what + "has a move that is not its own";
      if (move != nullptr && !replica.memory && move->reservation.left() != round_up(block->size()))
        return what + "is arriving without memory or room for it";
      if (replica.vacating && at->index->contains(*block))
        return what + "leaves already, and may be a victim";
      int valid = 0;
      bool owned = false;
      bool arriving = false;
      for (const auto& other : nodes_) {
        const ReplicaState state = block->replica(other->id).word.state();
        valid += is_valid(state) ? 1 : 0;
        owned = owned || state == ReplicaState::owned;
        arriving = arriving || state == ReplicaState::arriving;
        if (state != ReplicaState::absent && !block->replica(other->id).listed) {
          return what + "has a replica at " + other->device->name() + " that is not listed";
        }
      }
      if (valid == 0) return "I1: " + what + "has no valid replica";
      if (owned && valid != 1)
        return "I2: " + what + "is owned, and valid " + std::to_string(valid) + " times";
      const bool held = made_of_.contains(block);
      if (held && owned) return "I2: " + what + "is owned, although something dropped is made of it";
      if (valid == 1 && !owned && !arriving && !held)
        return "I2: " + what + "has one valid replica, which does not own it";
      if (is_valid(replica.word.state()) && replica.copies.into() != nullptr && !replica.word.is_closed()) {
        return "I5: " + what + "is open while a copy into it is under way";
      }
    }
    if (vacating != at->vacating) {
      return name + " expects " + to_string(at->vacating) + " to leave, of replicas that leave it lists " +
             to_string(vacating);
    }
    if (replicas != at->replica_bytes) {
      return name + " accounts for " + to_string(at->replica_bytes) + " of replicas but lists " +
             to_string(replicas);
    }
  }
  return {};
}

Status Engine::synchronize() {
  // What goes by way of the host goes on from there, and comes to its end too: from one card to the host,
  // to the disk and back, to another card. Another thread's moves are not waited for.
  constexpr int kMostHops = 5;
  for (int hops = 0; hops < kMostHops; ++hops) {
    issue_waiting();
    for (const auto& at : nodes_) {
      if (!at->device->is_lost()) IK_RETURN_IF_ERROR(at->device->synchronize());
    }
    if (under_way_.load(std::memory_order_relaxed) == 0) break;
    size_t looks = 0;
    {
      MutexLock lock(mutex_);
      looks = watched_.size() / kLandedAtOnce + 1;
    }
    for (; looks > 0; --looks) advance();
  }
  MutexLock lock(mutex_);
  for (const auto& at : nodes_) {
    reclaim(*at);
    // Events are asked while their devices can answer: a device that is lost later takes back nothing of
    // this.
    for (Block* block = at->first; block != nullptr; block = block->replica(at->id).next) {
      const Replica& replica = block->replica(at->id);
      if (!is_moving(*block)) (void)is_done(replica.copies.into());
    }
  }
  return {};
}

Bytes Engine::trim() {
  Bytes given{0};
  for (const auto& at : nodes_) given += at->device->trim();
  return given;
}

}  // namespace innkeeper
