// Moves of blocks between nodes: how they start, go on, land and fail (move.h, docs/design/moves.md).
//
// No thread owns a move: operators that end, threads that wait and the mover's own thread take its next step
// (advance). Work on a block runs without the lock (I10), on a block that the thread has marked as moving;
// other threads may pin and read its valid replicas meanwhile.
//
// A move needs free memory at its destination. SpaceSource gives it; so the mover knows no evictor.
//
// Thread safety: as annotated; functions without an annotation may be called from any thread.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "innkeeper/stats.h"
#include "residency/books/lasting_pins.h"
#include "residency/books/program_trackers.h"
#include "residency/movement/memory_release.h"
#include "residency/movement/mover_thread.h"
#include "residency/movement/space_source.h"
#include "residency/movement/transfers.h"

namespace innkeeper {

class Mover final : public MoverThread::Work {
 public:
  // The arguments must outlive the mover; so must the source, which is set before the first move.
  Mover(BlockTable& table, const LastingPins& pins, ProgramTrackers& trackers)
      : table_(table),
        pins_(pins),
        trackers_(trackers),
        release_(table),
        transfers_(table),
        thread_(table, *this) {}
  void set_space_source(SpaceSource& source) { space_ = &source; }
  void set_link_limits(const LinkLimits& limits) { links_ = limits; }
  const LinkLimits& link_limits() const { return links_; }

  // ---- the parts below
  MemoryRelease& release() { return release_; }
  Transfers& transfers() { return transfers_; }
  const Transfers& transfers() const { return transfers_; }
  MoverThread& thread() { return thread_; }

  // ---- start; requires: this thread has marked the block as moving
  // Brings the block to `to`. Ensures: the replica there is arriving or valid, or owned if the block was
  // never written. Code::discarded if the block must be recomputed first.
  Status fetch(Block& block, NodeId to, MoveIntent intent) IK_EXCLUDES(engine_mutex);
  // Moves valid bytes from one node to another that it reaches directly. `leaves`: the source is about to
  // leave, so the bytes are valid at once; at a disk only once they have landed.
  Status start_move(Block& block, NodeId from, NodeId to, MoveIntent intent, bool leaves)
      IK_EXCLUDES(engine_mutex);
  // Has a disk start to read a block that an operator at `to` is about to need, while it reads others. Takes
  // the mark itself.
  void start_disk_read(Block& block, NodeId to) IK_EXCLUDES(engine_mutex);

  // ---- arrival; requires: this thread has marked the block as moving
  // Issues the copies that are left, and orders the node's compute queue after all of them: operators may
  // read the replica then.
  Status finish_arrival(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);
  // Opens a valid replica that was closed because of copies under way: it orders the compute queue after
  // them.
  Status open_replica(Block& block, NodeId id) IK_EXCLUDES(engine_mutex);

  // ---- progress
  // Takes the next steps of moves that wait for a link or whose copies are done. One load where there are
  // none.
  void advance() IK_EXCLUDES(engine_mutex) {
    if (table_.signal().is_needed()) [[unlikely]]
      advance_moves();
  }
  void advance_moves() override IK_EXCLUDES(engine_mutex);
  size_t rounds() const override IK_REQUIRES(engine_mutex) { return watched_.size() / kLandedAtOnce + 1; }
  void issue_waiting() IK_EXCLUDES(engine_mutex);  // Queues all copies that wait for a link.

  // ---- waiting; the functions that wait release the lock meanwhile
  // Bytes of the node that are free once moves out of it have landed for which this thread may wait
  // (BlockTable::may_await).
  Bytes landing_soon(const Node& node) const IK_REQUIRES(engine_mutex);
  // Waits until one replica that leaves the node has left, or stays because its move failed.
  Status wait_landing(Node& node) IK_REQUIRES(engine_mutex);
  // Waits until the move has landed and its source has left, or this thread may not wait for it any more. The
  // block may end meanwhile.
  Status wait_landed(MovePtr move) IK_REQUIRES(engine_mutex);

  // ---- cancelling; the first two release the lock meanwhile
  // Cancels the last move into the node that has memory and no copy yet. Returns whether there was any.
  bool cancel_last_waiting(Node& node) IK_REQUIRES(engine_mutex);
  // Cancels a program's planned moves that have no copy yet.
  void cancel_planned(int64_t program) IK_EXCLUDES(engine_mutex);
  // No move takes the block's bytes further than they go now.
  void cancel_next_hop(const Block& block) IK_REQUIRES(engine_mutex);

  // ---- observation
  static bool is_all_issued(const Move& move) {  // A move of no bytes is issued once it is copying.
    return move.state() >= MoveState::copying && move.begun == move.block->size();
  }
  int64_t fetches() const { return fetches_.load(); }
  void reset_counts();

 private:
  enum class Parts : uint8_t { one, all };
  // Watched moves that one call of advance_moves() looks at.
  static constexpr size_t kLandedAtOnce = 8;

  // fetch()
  Status allocate_unwritten(Block& block, NodeId id, MoveIntent intent) IK_EXCLUDES(engine_mutex);
  Status close_until(Replica& replica, NodeId id, Queue queue) IK_EXCLUDES(engine_mutex);
  Result<Memory> allocate(Reservation& reservation, Bytes size, Queue first) IK_EXCLUDES(engine_mutex);
  void start_next_hop(Block& block, MovePtr move, NodeId to) IK_EXCLUDES(engine_mutex);
  // Queues copies of the move: one part, or all that are left. Where that fails, the block is as it was.
  Status issue(Move& move, Parts parts) IK_EXCLUDES(engine_mutex);
  Status allocate_destination(Move& move) IK_EXCLUDES(engine_mutex);
  Status fail(Move& move, Status why) IK_EXCLUDES(engine_mutex);
  // Whether the destination is valid as soon as its copies are queued, and closed: no thread waits for it
  // yet.
  bool stays_closed(const Move& move) const;
  Link& link_of(const Move& move);
  void watch(MovePtr move) IK_REQUIRES(engine_mutex);
  void count_under_way() IK_REQUIRES(engine_mutex);
  // Issue copies of moves that wait for links: one part while a link is free, or all parts. Both release and
  // retake the lock for each move that they issue.
  void advance_links(Parts parts) IK_REQUIRES(engine_mutex);
  void advance_link(Link& link, Parts parts) IK_REQUIRES(engine_mutex);
  // Finishes a move whose copies are done. Releases and retakes the lock.
  Status land(const MovePtr& move) IK_REQUIRES(engine_mutex);

  BlockTable& table_;
  const LastingPins& pins_;
  ProgramTrackers& trackers_;
  SpaceSource* space_ = nullptr;
  MemoryRelease release_;
  Transfers transfers_;
  LinkLimits links_;
  std::deque<MovePtr> watched_ IK_GUARDED_BY(engine_mutex);  // A thread must see them land.
  std::unordered_map<const Block*, MovePtr> going_on_ IK_GUARDED_BY(engine_mutex);  // Moves with a next hop.
  std::atomic<int64_t> fetches_ = 0;
  MoverThread thread_;
};

}  // namespace innkeeper
