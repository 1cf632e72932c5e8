// The part of each node's free space that a program's schedule can count on.
//
// A schedule is made for the free bytes that the engine reports. Scratch memory of kernels and other programs
// may take part of it, and then the engine has to evict blocks that no plan moves. The bytes that it evicts
// in a period are the shortage that the next schedule leaves unused. The shortage rises period by period
// until one evicts nothing, or until a schedule for less free space evicts no less: then free space was not
// the cause, and the shortage with which the least was evicted is kept.
//
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "plan/engine_view.h"
#include "plan/program.h"
#include "plan/schedule.h"

namespace innkeeper::plan {

class FreeSpaceEstimate {
 public:
  // A schedule is being made.
  void start_schedule() { backing_ = kNoNode; }
  // `free` bytes are free at a node of the schedule. Returns the bytes that the schedule may use.
  Bytes usable(NodeId node, Bytes free);
  // The node receives what leaves the others, and has `free` bytes for it.
  void set_backing(NodeId node, Bytes free);

  // A period of the program begins, or its plan has changed.
  void start_period() { evicted_.fill(0); }
  // The engine evicted blocks without a plan in the current period.
  void evicted(NodeId node, Bytes size) { evicted_[index_of(node)] += size.count(); }
  // Learns from the evictions of a period that followed all of `moves`. Returns whether a new schedule is
  // due. Requires: the period before was followed, too. The first one begins with other blocks at the nodes
  // than its schedule assumes, and says nothing.
  bool learn_shortage(std::span<const PlannedMove> moves);
  // Whether free space differs from the schedule's by more than kReplanThreshold: a budget was set, blocks
  // were pinned, or another program came or went. `periods` counts the periods of all programs; after each
  // change more of them pass until the next one is noticed. Ensures: if true, the shortage is forgotten.
  bool has_changed(const Program& program, const EngineView& engine, int64_t periods);

  // Ensures: the next period notices a change.
  void reset();
  // The count of periods starts from 0 again, after `periods` of them.
  void restart_periods(int64_t periods) { settles_at_ -= periods; }

 private:
  using ByNode = std::array<int64_t, kMaxNodes>;
  static constexpr int kMostSchedules = 8;  // Schedules made for a shortage.
  // 1/16 of the free space: a period adds at most this much to a node's shortage.
  static constexpr int64_t kShortageTolerance = 16;
  // Replan when free space changed by more than 1/16.
  static constexpr int64_t kReplanThreshold = 16;
  // Periods without other free space after which a replan waits no longer than at first.
  static constexpr int64_t kQuietPeriods = 16;
  // At most 2 to the power of this many periods pass before other free space leads to a replan.
  static constexpr int kMostChanges = 4;

  void forget_shortage();

  ByNode free_{};                   // Free bytes per node that the schedule was made for.
  ByNode shortage_{};               // Bytes of `free_` that the schedule leaves unused.
  ByNode evicted_{};                // Bytes that the engine evicted in the current period.
  ByNode best_shortage_{};          // Value of `shortage_` with which a period evicted least.
  int64_t least_left_ = INT64_MAX;  // Bytes that left the nodes in that period.
  NodeId backing_ = kNoNode;        // Node that receives what leaves; kNoNode: the schedule uses none.
  int schedules_ = 0;               // Schedules made for a shortage.
  int changes_ = 0;                 // Replans for other free space since kQuietPeriods.
  int64_t settles_at_ = 0;          // Period from which on other free space leads to a replan.
};

}  // namespace innkeeper::plan
