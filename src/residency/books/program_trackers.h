// The programs that are followed: one a thread, each with a planner of its own, so that experiments side by
// side are each planned for (docs/design/plans.md). And which program a block belongs to.
//
// A thread's program is followed from its first operator on where no other is, and after some hundred
// operators beside others, since most threads are no programs: they copy a batch, or sum gradients. Where all
// places are taken it gets that of a thread that has ended, or of a program that has done nothing for long.
//
// A block is planned for by one program, as its name says. The program that uses it next takes it over, a few
// times: what one thread made another one trains. What several go on using stays where it is then, and the
// others know nothing of it; until that thread ends.
//
// Thread safety: all methods. A program's lock comes before Engine's, and is held while what is planned is
// started; no thread waits for a second one while holding one.
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

// Of a block: its program and its name there, and how often it was taken over. 0: it has none.
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
  static constexpr int64_t kMostTimes = 7;  // three bits, and none for a sign
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
  std::array<double, kMaxNodes> kernels_before IK_GUARDED_BY(mutex){};  // an operator, in seconds
  double host_before IK_GUARDED_BY(mutex) = 0;                          // the host's clock; 0: unknown
  std::array<double, kMaxNodes> recomputed_in_period
      IK_GUARDED_BY(mutex){};                  // Recomputed part in the period, seconds.
  ComputeTime in_period IK_GUARDED_BY(mutex);  // Time of the last period followed to its end.

  bool is_of(const ThreadState& thread) const;
  bool is_over() const;  // The thread has ended, or there was none.

  std::atomic<const ThreadLife*> life{nullptr};  // Life of the thread; null: none yet.
  std::atomic<int64_t> program{0};               // Number of the program, from 1.
  std::atomic<Stamp> last{0};                    // Stamp of the last operator.
  std::atomic<int64_t> arrived{0};               // bytes of its blocks, moved to where they are used
  std::atomic<bool> may_drop_next{true};         // Planner::may_drop_next(), behind its last operator
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
  // What a tracker's planner may plan with at a node.
  using Room = std::function<Bytes(const ProgramTracker&, NodeId)>;

  ProgramTracker* of_thread(const ThreadState& thread);  // null if it has none
  ProgramTracker* of_program(int64_t program);           // null if nothing is followed under that number
  // By whatever thread: what waited for a disk the engine's own one brings.
  void arrived(BlockName block, Bytes size);
  // Whose period is told of: the thread's, if it has done one; else that of who did something last; null if
  // nobody's.
  const ProgramTracker* shown_to(const ThreadState& thread) const;
  // One for a thread that has none, at an operator of its; null if it is to have none yet.
  ProgramTracker* give_place(ThreadState& thread, Stamp now, const Room& room, plan::Planner::About about)
      IK_EXCLUDES(mutex_);
  // Whether another thread's program is busy at a node.
  bool others_at(NodeId node, const ThreadState& thread, Stamp now) const;
  // What a tracker may have of the room at a node: all that others who are busy do not need there, and as
  // much as each of them where that is more. A program whose needs are unknown needs all where it is busy.
  Bytes part(const ProgramTracker& tracker, NodeId node, Bytes room, Stamp now) const;

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

  // All of them find their periods again.
  void interrupt();

  // From now on plans of long periods are made on a thread of its own. Before the first place is given.
  void plan_in_background() { worker_ = std::make_unique<BackgroundWorker>(); }

  std::span<ProgramTracker> all() { return trackers_; }
  std::span<const ProgramTracker> all() const { return trackers_; }

 private:
  static constexpr size_t kFollowed = 8;
  static constexpr int64_t kStrange = 512;        // operators, before one beside others is followed
  static constexpr Stamp kBusy = Stamp{1} << 14;  // operators of all, since its last one at a node
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

// Parts a room among those that want so much of it: one that wants less than an equal part leaves the rest to
// the others. What is left for one who wants all that can be had.
Bytes fair_part(Bytes room, std::span<const Bytes> others);

}  // namespace innkeeper
