// Makes free memory: charges and reservations that go as far as evicting, and the choice of victims (I4, I7).
//
// Every request takes the steps of one ladder (make_room, step): parked memory, victims, moves that land,
// escapes, moves that may be cancelled, parked memory that a copy still reads; then other threads. See
// docs/internals/making_room.md.
//
// Thread safety: as annotated; functions without an annotation may be called from any thread.
#pragma once

#include <vector>

#include "residency/books/ledger.h"
#include "residency/movement/mover.h"

namespace innkeeper {

class Evictor final : public Accountant, public SpaceSource {
 public:
  // The arguments must outlive the evictor.
  Evictor(BlockTable& table, Ledger& ledger, LastingPins& pins, ProgramTrackers& trackers, Mover& mover)
      : table_(table), ledger_(ledger), pins_(pins), trackers_(trackers), mover_(mover) {}

  // ---- Accountant: allocations of devices
  // Charges the thread's reservation at the node first, if it has one; else the budget, and waits for memory
  // as a kernel's allocation must.
  Status charge(NodeId id, Bytes size) override IK_EXCLUDES(engine_mutex);
  void uncharge(NodeId id, Bytes size) noexcept override;

  // ---- SpaceSource
  Result<Reservation> reserve(NodeId id, Bytes size, Reserve mode) override IK_EXCLUDES(engine_mutex);
  void finish_eviction(Node& node, Block& block) override IK_EXCLUDES(engine_mutex);

  // ---- requests
  // Evicts down to the new budget. Fails and keeps the old one if bytes that cannot leave exceed it. Waits
  // for another thread that changes the node's budget.
  Status set_budget(NodeId id, Bytes wanted) IK_EXCLUDES(engine_mutex);
  // Takes one step for a device that has no memory although the budget has, or waits for another thread's:
  // the caller allocates again, and calls again if that fails. Fails if nothing can leave; as busy instead of
  // waiting for an operator that gathers its operands (ArmedReservation).
  Status relieve(NodeId id, Bytes size) IK_EXCLUDES(engine_mutex);
  // Evicts every unpinned block, and waits until all have landed (INNKEEPER_STRESS=evict).
  Status evict_all() IK_EXCLUDES(engine_mutex);
  // One replica leaves. The owner's bytes are copied elsewhere first (I1): with `peers` to an accelerator
  // with plenty of free memory, else to the backing node. On the way to a disk the replica stays until the
  // bytes have landed (Replica::vacating), since a disk may be full (I7). Requires: the replica is closed,
  // and this thread has marked the block as moving.
  Status evict(Node& node, Block& block, bool peers, Reserve mode) IK_EXCLUDES(engine_mutex);
  // Writes the next dirty victim to the disk ahead of its eviction, if operators have recently evicted.
  void write_back_ahead(Node& node) IK_EXCLUDES(engine_mutex);

  int64_t evictions() const { return evictions_.load(); }
  void reset_counts() { evictions_.store(0); }

 private:
  // Of the next victims, so many are clean before no more are written back ahead.
  static constexpr size_t kCleanAhead = 8;
  // One step down the ladder: memory was freed, something was given up that may free some, or nothing is
  // left.
  enum class Step : uint8_t { freed, unblocked, none };
  struct Taken {
    Step step = Step::none;
    Status failure;  // Of victims that could not leave; another thread may free the memory that they lack.
  };

  class OperatorGoal;  // evictor.cc
  class ChargeGoal;
  class ReliefGoal;
  class BudgetGoal;
  // make_room() and step() release the lock meanwhile.
  template <class Goal>
  Status make_room(Node& node, Goal& goal, Reserve mode) IK_REQUIRES(engine_mutex);
  // Calls `count_eviction` after victims were evicted, without the lock. Fails where a device does. `landing`
  // is the first failure of a move that was waited for: after it no more victims leave, so that a disk that
  // fails ends the search.
  template <class Count>
  Result<Taken> step(Node& node, Bytes shortfall, Reserve mode, const Count& count_eviction, Status& landing)
      IK_REQUIRES(engine_mutex);
  // Whether other threads may free memory at the node, now or once this one has given up.
  bool others_may_free(const Node& node, Reserve mode) const IK_REQUIRES(engine_mutex);
  Status charge_slowly(Node& node, Bytes size, Reserve mode) IK_EXCLUDES(engine_mutex);
  // `most`: bytes of the largest block that is copied to the backing node.
  std::vector<Block*> collect_victims(Node& node, Bytes shortfall, Bytes most = Bytes(INT64_MAX))
      IK_REQUIRES(engine_mutex);
  bool is_spare(const Block& block, NodeId id) const IK_REQUIRES(engine_mutex);
  bool take_as_victim(Block& block, NodeId id) IK_REQUIRES(engine_mutex);
  Status evict_some(Node& node, std::vector<Block*> victims, Bytes size, Reserve mode)
      IK_EXCLUDES(engine_mutex);
  Status evict_victims(Node& node, std::vector<Block*> victims, bool peers, Reserve mode)
      IK_EXCLUDES(engine_mutex);
  Status copy_to_peer(Block& block, const Node& from) IK_EXCLUDES(engine_mutex);

  BlockTable& table_;
  Ledger& ledger_;
  LastingPins& pins_;
  ProgramTrackers& trackers_;
  Mover& mover_;
  std::atomic<int64_t> evictions_ = 0;
};

}  // namespace innkeeper
