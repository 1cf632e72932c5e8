// The programs that are followed, one a thread, each with a planner of its own: so concurrent experiments are
// each planned for (docs/design/plans.md). Also the program that a block belongs to.
//
// A thread's program is followed from its first operator on if no other program is, else after some hundred
// operators: most threads are no programs, they copy a batch or sum gradients. Where all places are taken, a
// new program replaces that of a thread that has ended, or one that has been idle for long.
//
// One program plans for a block: the one that the block's name says. The next program that uses the block
// takes it over, a few times: one thread creates a model, another trains it. A block that several programs go
// on using then stays with the last one until its thread ends, and the others do not plan for it.
//
// Thread safety: every function.
// Locks: a tracker's mutex comes before engine_mutex, and is held while planned moves start. No thread waits
// for a second tracker's mutex while it holds one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/background_worker.h"
#include "base/thread_annotations.h"
#include "base/types.h"
#include "innkeeper/stats.h"
#include "plan/planner.h"
#include "residency/block/compute_time.h"
#include "residency/block/stamps.h"

namespace innkeeper {

struct ThreadLife;
struct ThreadState;

// A block's program, its name in that program, and how often it was taken over; 0 if no program knows it.
class BlockName {
 public:
  BlockName() = default;
  explicit BlockName(int64_t packed) : packed_(packed) {}
  BlockName(int64_t program, plan::Name name, int64_t times)
      : packed_((times << (kNameBits + kProgramBits)) | (program << kNameBits) | name) {}

  int64_t packed() const { return packed_; }
  bool none() const { return packed_ == 0; }
  plan::Name name() const { return packed_ & ((int64_t{1} << kNameBits) - 1); }
  int64_t program() const { return (packed_ >> kNameBits) & ((int64_t{1} << kProgramBits) - 1); }
  int64_t times() const { return packed_ >> (kNameBits + kProgramBits); }

  static constexpr int kNameBits = 44;  // Half a year of births, a million a second.
  static constexpr int kProgramBits = 16;
  static constexpr int64_t kMostTimes = 7;  // Three bits; the sign stays 0.
  static constexpr int64_t kMostPrograms = (int64_t{1} << kProgramBits) - 1;

 private:
  int64_t packed_ = 0;
};

struct ProgramTracker {
  mutable Mutex mutex;
  std::unique_ptr<plan::Planner> planner IK_GUARDED_BY(mutex);
  std::vector<plan::Touch> touches IK_GUARDED_BY(mutex);  // Accesses of the last operator.
  int64_t arrived_before IK_GUARDED_BY(mutex) = 0;        // Bytes that arrived before the period.
  int64_t arrived_in_period IK_GUARDED_BY(mutex) = 0;     // Bytes of the last period followed to its end.
  std::array<ComputeTime, kMaxNodes> time_before IK_GUARDED_BY(mutex);  // Clocks at the begin of the period.
  std::array<double, kMaxNodes> kernels_before IK_GUARDED_BY(mutex){};  // After the last operator, seconds.
  double host_before IK_GUARDED_BY(mutex) =
      0;  // The host's clock after the last operator, seconds; 0: unknown.
  std::array<double, kMaxNodes> recomputed_in_period
      IK_GUARDED_BY(mutex){};                  // Recomputed part in the period, seconds.
  ComputeTime in_period IK_GUARDED_BY(mutex);  // Time of the last period followed to its end.

  bool is_of(const ThreadState& thread) const;
  bool is_over() const;  // The thread has ended, or there was none.

  std::atomic<const ThreadLife*> life{nullptr};  // Life of the thread; null: none yet.
  std::atomic<int64_t> program{0};               // Number of the program, from 1.
  std::atomic<Stamp> last{0};                    // Stamp of the last operator.
  std::atomic<int64_t> arrived{0};               // Bytes of its blocks that arrived where operators use them.
  std::atomic<bool> may_discard_next{true};      // Planner::may_discard_next() after the last operator.
  // By node: the last operator there, and the bytes that a period has a use for there (plan::WorkingSet).
  std::array<std::atomic<Stamp>, kMaxNodes> last_at{};
  std::array<std::atomic<int64_t>, kMaxNodes> demand{};
};

// Whether a program's periods are followed now, how many were from end to end, how often one was left.
struct PlanningStats {
  bool follows = false;
  int64_t periods = 0;
  int64_t divergences = 0;
  PeriodStats period;
};

class ProgramTrackers {
 public:
  // Bytes of a node that a tracker's planner may plan with.
  using FreeSpace = std::function<Bytes(const ProgramTracker&, NodeId)>;

  ProgramTracker* of_thread(const ThreadState& thread);  // null if it has none
  ProgramTracker* of_program(int64_t program);           // null if nothing is followed under that number
  // Called by any thread: the mover's own thread brings blocks that waited for a disk.
  void arrived(BlockName block, Bytes size);
  // The tracker whose period is reported: the thread's, if it has completed one; else the last active one.
  // Null if there is none.
  const ProgramTracker* shown_to(const ThreadState& thread) const;
  // A tracker for a thread that has none, at one of its operators; null if it gets none yet.
  ProgramTracker* give_place(ThreadState& thread, Stamp now, const FreeSpace& space,
                             plan::Planner::About about) IK_EXCLUDES(mutex_);
  // Whether another thread's program is busy at a node.
  bool others_at(NodeId node, const ThreadState& thread, Stamp now) const;
  // The tracker's share of `space` bytes at a node: all that busy programs do not need there, or as much as
  // each of them where that is more. A program whose working set is unknown needs all bytes of a node where
  // it is busy.
  Bytes part(const ProgramTracker& tracker, NodeId node, Bytes space, Stamp now) const;

  // Whether movement may be planned, and whether operators' accesses are followed for that: from the first
  // eviction on. Relaxed loads: operators ask them.
  bool may_plan() const { return may_plan_.load(std::memory_order_relaxed); }
  bool may_still_plan() const { return may_plan_.load(std::memory_order_seq_cst); }
  bool follows() const { return follows_.load(std::memory_order_relaxed); }
  void start_following() {
    if (may_plan()) follows_.store(true, std::memory_order_relaxed);
  }
  void stop_following() { follows_.store(false, std::memory_order_relaxed); }
  void set_planning(bool on) {
    may_plan_.store(on, std::memory_order_seq_cst);
    if (!on) stop_following();
  }

  // Every tracker searches for its period again.
  void interrupt();

  // From now on plans of long periods are made on a thread of its own. Before the first place is given.
  void plan_in_background() { worker_ = std::make_unique<BackgroundWorker>(); }

  std::span<ProgramTracker> all() { return trackers_; }
  std::span<const ProgramTracker> all() const { return trackers_; }

 private:
  static constexpr size_t kFollowed = 8;
  static constexpr int64_t kStrange = 512;  // Operators before a program beside others is followed.
  static constexpr Stamp kBusy = Stamp{1}
                                 << 14;  // Operators of all threads since the program's last one at a node.
  static constexpr Stamp kForgotten = Stamp{1}
                                      << 18;  // Stamps without an operator after which its place is free.

  static bool is_busy(const ProgramTracker& tracker, const std::atomic<Stamp>& last, Stamp now);
  ProgramTracker* place_for(Stamp now) IK_REQUIRES(mutex_);

  std::unique_ptr<BackgroundWorker> worker_;  // null: plans are made where the program asks for them
  std::atomic<bool> may_plan_ = true;
  std::atomic<bool> follows_ = false;
  Mutex mutex_;
  std::vector<std::shared_ptr<const ThreadLife>> lives_ IK_GUARDED_BY(mutex_);  // one a program
  int64_t programs_ IK_GUARDED_BY(mutex_) = 0;
  std::array<ProgramTracker, kFollowed> trackers_;
};

// The fair share of `space` bytes for a program that could use all of them, beside programs whose working
// sets are `others`: a program whose working set is smaller than an equal share gives the remainder to the
// other programs.
Bytes fair_part(Bytes space, std::span<const Bytes> others);

}  // namespace innkeeper
