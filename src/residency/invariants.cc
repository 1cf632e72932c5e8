#include "residency/invariants.h"

#include <chrono>
#include <string>
#include <thread>

namespace innkeeper {

namespace {

// How often, and how far apart, a difference in the books is looked for before it counts.
constexpr int kLooks = 200;
constexpr std::chrono::milliseconds kBetweenLooks{1};

std::string check_books(BlockTable& table) {
  for (const auto& at : table.nodes()) {
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

std::string check_replicas(BlockTable& table) IK_REQUIRES(engine_mutex) {
  for (const auto& at : table.nodes()) {
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
      if (block->is_moving()) continue;
      const Move* const move = replica.copies.move();
      if ((move != nullptr) != (replica.word.state() == ReplicaState::arriving))
        return what + "is " + to_string(replica.word.state()) + (move ? " and" : " without") + " a move";
      if (move != nullptr && (move->is_over() || move->to != at->id || move->block != block))
        return what + "has a move that is not its own";
      if (move != nullptr && !replica.memory && move->reservation.left() != round_up(block->size()))
        return what + "is arriving without memory or a promise of it";
      if (replica.vacating && at->index->contains(*block))
        return what + "leaves already, and may be a victim";
      int valid = 0;
      bool owned = false;
      bool arriving = false;
      for (const auto& other : table.nodes()) {
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
      const bool held = block->feeds_discarded();
      if (held && owned) return "I2: " + what + "is owned, although it feeds a discarded block";
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

}  // namespace

std::string check_invariants(BlockTable& table) {
  for (int look = 1;; ++look) {
    {
      TableLock lock(table);
      table.drain_nursery();
      if (std::string broken = check_replicas(table); !broken.empty()) return broken;
      std::string broken = check_books(table);
      if (broken.empty() || look == kLooks) return broken;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace innkeeper
