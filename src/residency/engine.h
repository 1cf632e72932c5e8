// The engine: knows where every block's bytes are, brings them where an operator needs them and makes room.
//
// It owns the nodes' devices and the blocks. It knows no tensor, no kernel and no torch.
//
// An operator runs like this (operator_scope.h):
//     std::optional<OperatorScope> scope;  // one at a time on a node that is short of room
//     IK_RETURN_IF_ERROR(gather(engine, node, accesses, scope));  // every operand is at `node` and pinned
//     ... the kernel; its allocations call charge() ...
//     engine.adopt(block, node, memory);                   // results that are new: pinned, as operands are
//     engine.release(node, accesses, what);                // operands and results
//
// Invariants: I1 to I12 (docs/design/coherence.md); each place that keeps one names it. check_invariants()
// verifies what can be.
//
// Thread safety: every method may be called from any thread. Two threads that use one block must be ordered
// by the program where one of them writes, as PyTorch asks of them (I8).
// Locks: one mutex. It is never held across a copy, an allocation, a kernel or a wait for a device (I10): a
// thread that works on a block without it sets the block's `moving` flag. No thread waits for a moving block
// while it pins others, so waits form no cycle.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/thread_annotations.h"
#include "base/types.h"
#include "device/device_api.h"
#include "innkeeper/stats.h"
#include "policy/eviction.h"
#include "policy/placement.h"
#include "residency/access.h"
#include "residency/block.h"
#include "residency/compute_time.h"
#include "residency/node.h"
#include "residency/nursery.h"
#include "residency/observers.h"
#include "residency/program_trackers.h"
#include "residency/recorded_call.h"
#include "residency/reservation.h"
#include "residency/thread_state.h"
#include "trace/event.h"
#include "trace/stream.h"

namespace innkeeper {

struct NodeSetup {
  std::unique_ptr<Device> device;
  Bytes budget;
  bool computes = false;  // operators may run here
  plan::Speed speed = {};
  std::function<ComputeTime()> time = nullptr;  // null: it is not measured
};

class Engine final : public Accountant {
 public:
  // At most one host and one disk node. An accelerator's replicas are written back to the host, the host's to
  // disk.
  Engine(std::vector<NodeSetup> nodes, std::unique_ptr<EvictionPolicy> policy);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // To be set before the first block is created.
  void set_memory_observer(MemoryObserver observer) { observer_ = std::move(observer); }
  void set_escape_probe(EscapeProbe probe) { probe_ = std::move(probe); }
  void set_copy_watch(CopyWatch watch) { watch_ = std::move(watch); }
  void set_recompute_index(RecomputeIndex index) { recompute_index_ = std::move(index); }
  void set_link_limits(LinkLimits limits) { links_ = limits; }

  // ---- nodes
  size_t node_count() const { return nodes_.size(); }
  Device& device(NodeId node) const { return *nodes_[index_of(node)]->device; }
  const std::vector<NodeId>& computing_nodes() const { return computing_; }
  NodeId host() const { return host_; }
  NodeId disk() const { return disk_; }
  NodeId find_node(const std::string& name) const;  // kNoNode if there is none
  Bytes budget(NodeId id) const { return Bytes(node(id).budget.load(std::memory_order_relaxed)); }
  Bytes used(NodeId id) const { return Bytes(node(id).used.load(std::memory_order_relaxed)); }
  Bytes free(NodeId id) const { return budget(id) - used(id); }
  // Evicts down to the new budget. Fails, and keeps the old one, if pinned bytes alone exceed it.
  Status set_budget(NodeId node, Bytes budget);
  // Evicts at least `size` bytes, or all that can leave, although the budget has room: the device itself has
  // none. Fails if nothing can leave.
  Status relieve(NodeId node, Bytes size);
  const EvictionPolicy& policy() const { return *policy_; }

  // ---- blocks
  // `space`: of a block of this engine that has gone.
  Block* create(Bytes size, Block::Space space = {});
  // The caller promises that no thread uses the block any more. Never fails; waits only for a move that is
  // under way.
  Block::Space destroy(Block* block);
  // A kernel's fresh result: `memory` becomes the block's only replica (the block has none yet), pinned until
  // the caller releases an access to it that is marked as pinned and born.
  void adopt(Block& block, NodeId node, Memory memory);
  // The kernel resized the storage of an operand that the caller has acquired for writing, or that had no
  // bytes.
  void replace(Block& block, NodeId node, Memory memory, Bytes size);
  // The size of a block that has no replica (an allocation that was never written).
  Status resize_unwritten(Block& block, Bytes size);

  // ---- operators
  // Pins every block at `node`, fetching what is missing; written blocks become owned there. All or nothing;
  // `dropped` where bytes must be computed first (gather).
  Status acquire(NodeId node, std::span<Access> accesses);
  // Gives back the pins that are still marked in `accesses`, and writes what was touched to the stream, where
  // there is a listener. An operation that has a name stands in records.
  void release(NodeId node, std::span<Access> accesses, const trace::Operation& what = {});
  // acquire() and release() for who works on the bytes until an end that comes by itself, on whatever thread:
  // an operator that finds no room at `node` meanwhile waits for that end.
  Status pin_async(NodeId node, std::span<Access> accesses);
  void take_back(NodeId node, std::span<Access> accesses);
  // Pins one block at `node` for the calling thread, which works on its bytes itself (innkeeper.resident).
  // Whatever waiting for that pin would be waiting for oneself fails at once.
  Status hold(Block& block, NodeId node, bool write);
  // The access of the thread's last hold() of the block there: the caller releases it, or keeps it as
  // escaped.
  Access let_go(Block& block, NodeId node);
  // Keeps the pin of one access because the real memory escaped; given back when the probe says so (I12).
  void keep_escaped(NodeId node, Access& access);
  // The block dies while its real memory on `node` is still held outside: hands the memory over.
  Memory detach(Block& block, NodeId node);
  // Most bytes that one operator could have at `node` now: budget less what is pinned for long.
  Bytes room(NodeId node) const;
  // Where an operator with these operands should run. Replicated operands count if there are no others. What
  // is written and pinned at the host is written there, although the host may not compute else.
  NodeId place(std::span<const Access> accesses, NodeId home) const;

  // ---- bytes that are computed again (recompute.cc)
  // Whether what is planned may be to drop blocks.
  void set_recompute(bool on);
  bool recomputes() const { return may_drop_.load(std::memory_order_relaxed); }
  // Gives the block's bytes at `node` up, as what it reads allows; false: it stays.
  bool drop(Block& block, NodeId node);
  bool drop(Block& block, NodeId node, std::unique_ptr<RecordedCall>& unused);  // The caller ends `unused`.
  // Has again what of these was dropped, and what is made of those to be written. Not in an OperatorScope.
  Status recompute(std::span<const Access> accesses);
  // Recomputes all that was discarded, before the process changes how it computes. Meanwhile no recorded call
  // is in force. Not in an OperatorScope.
  Status recompute_all();
  // A recorded call's operator has made the bytes of `block` again, at `node` and as those of `made`, which
  // has none afterwards.
  Status refill(Block& block, Block& made, NodeId node);
  // Has the calling thread run operators that are no part of its program: neither a planner nor a record
  // hears of them, and their kernels at `node` do not count as the program's.
  void run_unheard(NodeId node, const std::function<void()>& run);
  static bool is_unheard() { return thread_state().recomputing != 0; }

  // ---- requests about one block
  Status pin(Block& block, NodeId node);  // kept until unpinned as often
  void unpin(Block& block);               // takes back the last pin
  bool is_pinned(const Block& block) const;
  // Asks for a move for which no operator waits: its copies begin when the link has time, by way of the host
  // if they must; the first use waits for what is left of it.
  Status prefetch(Block& block, NodeId node);
  Status write_back(Block& block);  // Copies dirty bytes to the host; the replica stays.
  Status evict(Block& block);       // Accelerators to the host, or the host to disk.
  Status evict_all();               // every unpinned block, for INNKEEPER_STRESS=evict
  // Copies the block's bytes, from where they are, to memory that the engine does not know: for a reader
  // where every node is full. Nothing moves. Waits for the copy. Fails (unavailable) where there are no
  // bytes.
  Status read(Block& block, void* to);
  std::vector<NodeId> where(const Block& block) const;  // the owner first, and what has come unseen
  // Valid bytes, on a device that is there to read them.
  bool has_replica(const Block& block, NodeId node) const {
    return is_valid(block.replica(node).word.state()) && !device(node).is_lost();
  }
  // Ok, unless a device that is lost held the block's bytes alone.
  Status check_not_lost(const Block& block) const;

  // ---- planning
  // Plans that are made from now on are made for this speed of a node, which a probe has found.
  void set_speed(NodeId id, const plan::Speed& speed) { node(id).set_speed(speed); }
  plan::Speed speed(NodeId id) const { return node(id).speed(); }
  // Whether movement is planned from the first eviction on (the default).
  void set_planning(bool on);
  void plan_in_background() { trackers_.plan_in_background(); }  // Requires: no block was created yet.
  PlanningStats planning() const;
  std::vector<BlockMoves> planned_moves() const;  // Moves of the period in planning().

  // ---- moves
  // Takes the next steps of moves that wait for a link, or whose copies are done. Called wherever operators
  // end and threads wait; costs one load where there are none.
  void advance() IK_EXCLUDES(mutex_) {
    if (under_way_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      advance_moves();
  }
  // Has a thread of the engine's own do that whenever a disk has done something, and from time to time while
  // moves wait for the link of a device that works unseen: so they go on by themselves. Where no thread can
  // be started, they go on with the program's operators.
  void start_helper();
  void stop_helper();  // For good; operators go on with moves.

  // ---- accounting (Accountant)
  Status charge(NodeId node, Bytes size) override;
  void uncharge(NodeId node, Bytes size) noexcept override;
  // Room for `size` bytes, or who has it.
  Result<Reservation> reserve(NodeId node, Bytes size, Reserve mode);

  // ---- observation
  Stats stats() const;
  // Budget, resident, peak, evictions and operators of one node. Takes no lock, so the numbers need not be of
  // one moment.
  NodeStats glance(NodeId node) const;
  void reset_stats();
  void reset_peak(NodeId id) { node(id).peak.store(node(id).used.load()); }
  // What operators touch, and the ends of blocks: for records, and for the plans that are made here.
  const std::shared_ptr<trace::Stream>& stream() const { return stream_; }
  // Whether there is a listener for what operators touch.
  bool is_heard() const { return follows_.load(std::memory_order_relaxed) || stream_->on(); }
  // For the calling thread: plan::Planner::may_drop_next(); true while there is a record.
  bool may_drop_next();
  void count_operator(NodeId node) { nodes_[index_of(node)]->ops.fetch_add(1, std::memory_order_relaxed); }
  size_t block_count() const;
  // Empty, or the first invariant that is broken and how. While other threads allocate, memory that is
  // charged and not yet there is given 0.2 s before it counts as lost.
  std::string check_invariants() const;
  Status synchronize();
  Bytes trim();  // cached free memory of all nodes

 private:
  friend class OperatorScope;
  friend class ProgramCopy;

  // An operator is large if its operands take more than one part in so many of a budget: with its results and
  // scratch memory two of them may not fit beside each other.
  static constexpr int64_t kLargeOperator = 4;

  // How many pieces of parked memory are looked at whenever one is parked.
  static constexpr size_t kReapedAtOnce = 4;

  // So many of the next victims are clean: no more need be written back ahead.
  static constexpr size_t kCleanAhead = 8;

  // How many of the moves that are watched are looked at in one go.
  static constexpr size_t kLandedAtOnce = 8;

  // How often a link that has copies waiting is looked at: a part is copied in some milliseconds.
  static constexpr std::chrono::microseconds kLinkPoll{500};

  // How long a request goes on trying while others hold the room or the blocks it needs.
  static constexpr std::chrono::seconds kPatience{60};

  Node& node(NodeId id) { return *nodes_[index_of(id)]; }
  const Node& node(NodeId id) const { return *nodes_[index_of(id)]; }

  // engine.cc. Every state change is checked against the table.
  static void transition(Replica& replica, ReplicaEvent event);
  // Makes a valid replica a copy's source, which shares it. False if an operator writes it.
  static bool share(Replica& source) {
    IK_CHECK(is_valid(source.word.state()), "only valid bytes are shared");
    return source.word.try_share();
  }
  // A valid replica stays closed while a copy into it is not done, and the owner while one out of it is not:
  // the next pin orders itself after them (open_replica).
  static void reopen(Replica& replica) {
    if (replica.copies.into() == nullptr &&
        (replica.copies.none() || replica.word.state() != ReplicaState::owned)) {
      replica.word.open();
    }
  }
  void link(Block& block, NodeId id) IK_REQUIRES(mutex_);
  void list(Block& block, NodeId id) IK_REQUIRES(mutex_);
  void unlist(Block& block, NodeId id) IK_REQUIRES(mutex_);
  static bool is_moving(const Block& block) { return block.mover_ != nullptr; }
  // Lists what has been born and not looked for: all, or one block. Who looks for it comes here first.
  void drain_nursery() IK_REQUIRES(mutex_);
  void leave_nursery(Block& block) IK_REQUIRES(mutex_);
  void list_new(Block& block) IK_REQUIRES(mutex_);
  void look_for_room(Node& node) IK_REQUIRES(mutex_);
  bool retire(Block& block) IK_EXCLUDES(mutex_);
  void die(Block& block) IK_EXCLUDES(mutex_);
  class MoveScope;  // moving.h
  void begin_move(Block& block) IK_REQUIRES(mutex_);
  void end_move(Block& block) IK_REQUIRES(mutex_);
  void forget_move(Block& block) IK_REQUIRES(mutex_);
  void wait_move(Block& block) IK_REQUIRES(mutex_);
  void wait_change() IK_REQUIRES(mutex_);
  void inherit_if_last(Block& block) IK_REQUIRES(mutex_);
  NodeId any_replica(const Block& block) const;  // kNoNode if there is none
  void observe(Block& block, NodeId id, void* data) const {
    if (observer_) observer_(block, id, data);
  }

  class Moving;  // moving.h
  // acquire.cc
  void let_pins_go(NodeId id, std::span<Access> accesses);
  static void count_write(Block& block) {
    block.writes_.store(block.writes() + 1, std::memory_order_relaxed);
  }
  Status pin_slow(const Access& access, NodeId id);
  bool pin_closed(Replica& replica, const Access& access) IK_REQUIRES(mutex_);
  Status make_exclusive(Block& block, NodeId id) IK_REQUIRES(mutex_);
  bool held_by_me(const Block& block, NodeId id) const IK_REQUIRES(mutex_);
  Status pinned(const Block& block, const Node& at, const std::string& consequence) const IK_REQUIRES(mutex_);
  Status written(const Block& block, const Node& at) const IK_REQUIRES(mutex_);
  void wake_waiters() {
    if (waiters_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake_all();
  }
  void wake_all() IK_EXCLUDES(mutex_);

  // transfer.cc: called without the lock, while the block is marked as moving by this thread
  Stamp next_stamp() { return now_.fetch_add(1, std::memory_order_seq_cst) + 1; }
  Stamp touched(Replica& replica);
  Status order_copy(Device& runner, Queue queue, const Block& block, NodeId from) const;
  Status lost_with(const Block& block) const;
  void log_move(const char* verb, const Block& block, NodeId from, NodeId to) const;
  NodeId source_of(const Block& block, NodeId to) const;
  Result<Event> queue_copy(const Move& move, Bytes size, bool follows);
  std::atomic<int64_t>& bytes_copied(CopyKind kind);
  Result<Event> watched_copy(const Move& move, Bytes size, bool follows);
  Status finish_arrival(Block& block, NodeId id) IK_EXCLUDES(mutex_);
  Status open_replica(Block& block, NodeId id) IK_EXCLUDES(mutex_);
  void drop_replica(Block& block, NodeId id) IK_EXCLUDES(mutex_);
  // Memory that left a replica and is still charged: until release_memory() others who need room wait for it.
  struct Released {
    NodeId node = kNoNode;
    Memory memory;
    std::vector<Event> users;    // copies that may still touch it
    Stamp last_use = kAllSoFar;  // the last operator that may
  };
  Released begin_release(Block& block, NodeId id, ReplicaEvent event) IK_REQUIRES(mutex_);
  void begin_release(Node& node) IK_REQUIRES(mutex_);
  Released detach(Block& block, NodeId id, ReplicaEvent event) IK_REQUIRES(mutex_);
  // `soon`: others wait for the room, which copies may fill; so its last user counts, not the queue's last.
  void release_memory(Released released, bool soon) IK_EXCLUDES(mutex_);
  void give_back(Node& node, Released released, bool soon);

  // moves.cc: the lock is held, but where they say that they want it
  // Brings the block to `to`: leaves the replica arriving, valid, or owned if it was born.
  Status fetch(Block& block, NodeId to, MoveIntent intent) IK_EXCLUDES(mutex_);
  Result<Memory> allocate(Reservation& reservation, Bytes size, Queue first) IK_EXCLUDES(mutex_);
  Status allocate_unwritten(Block& block, NodeId id, MoveIntent intent) IK_EXCLUDES(mutex_);
  Status close_until(Replica& replica, NodeId id, Queue queue) IK_EXCLUDES(mutex_);
  // Moves valid bytes from one node to another that it reaches directly. With `leaves` the source is about to
  // leave: the bytes are valid at once, but at a disk, where they must have landed.
  Status start_move(Block& block, NodeId from, NodeId to, MoveIntent intent, bool leaves) IK_EXCLUDES(mutex_);
  Status allocate_destination(Move& move) IK_EXCLUDES(mutex_);
  // Puts copies of the move on their queue, one part or all that is left. Where that fails the block is as it
  // was, and the move has failed.
  enum class Parts : uint8_t { one, all };
  Status issue(Move& move, Parts parts) IK_EXCLUDES(mutex_);
  Status fail(Move& move, Status why) IK_EXCLUDES(mutex_);
  static bool is_all_issued(const Move& move) {  // what has no bytes still has its turn to come
    return move.state() >= MoveState::copying && move.begun == move.block->size();
  }
  // Whether bytes go from one node to the other without a third.
  bool reaches(NodeId from, NodeId to) const {
    return from == host_ || to == host_ || device(to).can_copy_from(device(from));
  }
  bool stays_closed(const Move& move) const;  // is valid as soon as its copies are on their queue
  Link& link_of(const Move& move);
  void watch(MovePtr move) IK_REQUIRES(mutex_);
  void finish_move(Block& block, NodeId id) IK_REQUIRES(mutex_);
  void cancel_vacate(Block& block, NodeId id) IK_REQUIRES(mutex_);
  void advance_moves() IK_EXCLUDES(mutex_);
  void advance_links(Parts parts) IK_REQUIRES(mutex_);
  void advance_link(Link& link, Parts parts) IK_REQUIRES(mutex_);
  Status land(const MovePtr& move) IK_REQUIRES(mutex_);
  void write_back_ahead(Node& node) IK_EXCLUDES(mutex_);
  // Bytes of a node that are free once moves out of it have landed, which this thread may wait for.
  Bytes landing_soon(const Node& node) const IK_REQUIRES(mutex_);
  Status wait_landing(Node& node) IK_REQUIRES(mutex_);
  Status wait_landed(MovePtr move) IK_REQUIRES(mutex_);
  bool cancel_last_waiting(Node& node) IK_REQUIRES(mutex_);
  void cancel_planned(int64_t program) IK_EXCLUDES(mutex_);
  void count_under_way() IK_REQUIRES(mutex_);
  bool may_be_helped() const IK_REQUIRES(mutex_);
  bool polls_links() const IK_REQUIRES(mutex_);
  void issue_waiting() IK_EXCLUDES(mutex_);
  void start_disk_read(Block& block, NodeId to) IK_EXCLUDES(mutex_);
  void wake_helper() IK_REQUIRES(mutex_);
  void start_next_hop(Block& block, MovePtr move, NodeId to) IK_EXCLUDES(mutex_);
  void cancel_next_hop(Block& block) IK_REQUIRES(mutex_);
  void run_helper() IK_EXCLUDES(mutex_);
  NodeId backing(const Node& node) const;

  // recompute.cc
  struct Dropped {
    std::unique_ptr<RecordedCall> call;
    bool under_way = false;  // a thread follows it
  };
  Status recompute(Block& block) IK_REQUIRES(mutex_);
  void recompute_while_there_is_room() IK_EXCLUDES(mutex_);
  bool has_room_for(const RecordedCall& call, const Block& result) const IK_REQUIRES(mutex_);
  bool hold_inputs(Block& block, const RecordedCall& call) IK_REQUIRES(mutex_);
  void let_inputs_go(Block& block, const RecordedCall& call) IK_REQUIRES(mutex_);
  void forget_dropped(Block& block) IK_EXCLUDES(mutex_);

  // planned.cc
  ComputeTime time_since_period_before(ProgramTracker& tracker) const IK_REQUIRES(tracker.mutex);
  void follow_if_memory_allows(NodeId id, const trace::Accesses& told, std::span<const Access> accesses);
  void follow(NodeId id, const trace::Accesses& told, std::span<const Access> accesses) IK_EXCLUDES(mutex_);
  plan::Name name_of(ProgramTracker& tracker, Block& block) IK_REQUIRES(tracker.mutex);
  void forget(const Block& block) {
    if (const BlockName name(block.name_.load(std::memory_order_acquire)); !name.none()) [[unlikely]]
      forget(name);
  }
  void forget(BlockName name);
  Bytes plannable(NodeId id) IK_EXCLUDES(mutex_);
  void leave_as_planned(Block& block, NodeId id) IK_EXCLUDES(mutex_);
  bool arrive_as_planned(Block& block, NodeId id) IK_EXCLUDES(mutex_);

  // room.cc
  bool try_charge(Node& node, Bytes size);
  Status charge_slowly(Node& node, Bytes size, Reserve mode) IK_EXCLUDES(mutex_);
  std::vector<Block*> collect_victims(Node& node, Bytes shortfall, Bytes most = Bytes(INT64_MAX))
      IK_REQUIRES(mutex_);
  bool take_as_victim(Block& block, NodeId id) IK_REQUIRES(mutex_);
  Status evict_some(Node& node, std::vector<Block*> victims, Bytes size, Reserve room) IK_EXCLUDES(mutex_);
  Status evict_victims(Node& node, std::vector<Block*> victims, bool peers, Reserve room) IK_EXCLUDES(mutex_);
  // With `peers` the owner's bytes may go to another accelerator instead of the backing node.
  Status leave(Node& node, Block& block, bool peers, Reserve room) IK_EXCLUDES(mutex_);
  void vacate(Node& node, Block& block) IK_EXCLUDES(mutex_);
  Status copy_to_peer(Block& block, const Node& from) IK_EXCLUDES(mutex_);
  bool wait_leaving(Node& node) IK_REQUIRES(mutex_);
  std::vector<Memory> reap(Node& node, size_t entries) IK_REQUIRES(mutex_);
  bool reclaim(Node& node) IK_REQUIRES(mutex_);
  bool poll_escapes() IK_REQUIRES(mutex_);
  bool others_move(const Node& node) const IK_REQUIRES(mutex_);
  void wait_for_room(Node& node) IK_REQUIRES(mutex_);
  Bytes pinned_bytes(const Node& node) const IK_REQUIRES(mutex_);
  std::string check_replicas() const IK_REQUIRES(mutex_);
  std::string check_books() const IK_REQUIRES(mutex_);
  Status out_of_room(const Node& node, Bytes size) const IK_REQUIRES(mutex_);
  static bool others_run(const Node& node);

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<NodeId> computing_;
  NodeId host_ = kNoNode;
  NodeId disk_ = kNoNode;
  std::unique_ptr<EvictionPolicy> policy_;
  MemoryObserver observer_;
  EscapeProbe probe_;
  CopyWatch watch_;
  RecomputeIndex recompute_index_;
  LinkLimits links_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::atomic<Stamp> now_{1};  // operators so far
  std::atomic<uint64_t> blocks_begun_{0};
  std::atomic<uint64_t> blocks_ended_{0};
  Nursery nursery_;
  std::atomic<int> waiters_{0};
  std::vector<std::pair<Block*, NodeId>> escaped_ IK_GUARDED_BY(mutex_);
  std::vector<Block*> moving_ IK_GUARDED_BY(mutex_);  // Unordered.
  struct Hold {
    const Block* block;
    NodeId node;
    bool write;
    const void* thread;  // ThreadState of the holder.
  };
  std::vector<Hold> holds_ IK_GUARDED_BY(mutex_);
  std::atomic<bool> pinned_to_host_{false};  // some block was, once
  struct Pin {
    NodeId node;
    Bytes size;  // Bytes of the replica; 0: another pin holds it.
  };
  std::unordered_map<const Block*, std::vector<Pin>> pinned_at_
      IK_GUARDED_BY(mutex_);  // Pins of the user, oldest first.
  void forget_pins(const Block& block) IK_REQUIRES(mutex_);

  std::deque<MovePtr> watched_ IK_GUARDED_BY(mutex_);                         // a thread must see them land
  std::unordered_map<const Block*, MovePtr> going_on_ IK_GUARDED_BY(mutex_);  // Moves with a next hop.
  std::atomic<int64_t> under_way_{0};  // moves that are watched, or wait for a link
  std::thread helper_;
  CondVar landed_;      // tells the helper
  bool polls_ = false;  // some device works unseen; set before the helper starts
  bool helper_wanted_ IK_GUARDED_BY(mutex_) = false;
  bool helper_has_work_ IK_GUARDED_BY(mutex_) = false;
  bool helper_sleeps_ IK_GUARDED_BY(mutex_) = false;
  bool helper_works_ IK_GUARDED_BY(mutex_) = false;  // The helper advances moves.
  int helper_rests_ IK_GUARDED_BY(mutex_) = 0;       // Threads that issue waiting moves themselves.

  std::unordered_map<const Block*, Dropped> dropped_ IK_GUARDED_BY(mutex_);
  std::unordered_map<const Block*, std::vector<Block*>> made_of_ IK_GUARDED_BY(mutex_);  // By input.

  std::atomic<bool> may_plan_{true}, may_drop_{false};
  std::atomic<bool> follows_{false};  // Set at the first eviction.
  ProgramTrackers trackers_;
  const std::shared_ptr<trace::Stream> stream_;

  std::atomic<int64_t> fetches_{0}, evictions_{0}, recomputed_{0};
  std::atomic<int64_t> bytes_fetched_{0}, bytes_written_back_{0}, bytes_between_{0};
  std::atomic<int64_t> bytes_from_disk_{0}, bytes_to_disk_{0};  // Parts of the above.
};

}  // namespace innkeeper
