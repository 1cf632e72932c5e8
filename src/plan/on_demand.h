// Models one node with on-demand movement: the cost of the program so far if the planner had moved nothing.
// score.h compares the cost of plans with it. A program that varies has no other measure, because no two of
// its periods need be alike.
//
// The planner feeds the model each operator after it has run. The model evicts in the engine's order
// (policy/eviction.h), copies over one link in each direction, and delays an operator until its operands and
// the space for its results are there. Its bytes are the engine's to a few per cent. Its seconds leave out
// scratch memory and the host's time, so score.h scales them.
//
// Cost: two hash lookups and O(1) amortised list operations for each operand.
//
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/free_space_clock.h"
#include "base/types.h"
#include "plan/history.h"
#include "plan/speed.h"
#include "policy/eviction.h"

namespace innkeeper::plan {

class OnDemand {
 public:
  // Totals since the model was created.
  struct Cost {
    double seconds = 0;  // The model's clock; 0 where the time of kernels is not known.
    Bytes arrived{0};    // Bytes copied to the node.
  };

  explicit OnDemand(const Speed& speed) : speed_(speed), policy_(make_reuse_distance_policy()) {}

  void set_speed(const Speed& speed) { speed_ = speed; }
  // Free space for the program's blocks. Until it is set, the model ignores operators.
  void set_space(Bytes space);
  // `seconds`: time of the operator's kernels.
  void ended(std::span<const Touch> touches, double seconds);
  void died(Name name);
  // An operator at another node has written the block, so its replica at this node is out of date.
  void written_elsewhere(Name name);

  const Cost& cost() const { return cost_; }

 private:
  using EntryIndex = uint32_t;
  static constexpr EntryIndex kNone = UINT32_MAX;
  static constexpr double kLatency = 10e-6;  // Of a copy, seconds.

  // A block that the node has, or had.
  struct Entry {
    Name name = 0;
    Bytes size{0};
    bool there = false;
    bool spare = false;  // The host has a valid copy, so eviction needs none.
    bool stays = false;
    uint64_t last_use = 0;  // The number of the operator.
    ReuseHistory reuse_history = {};
    EntryIndex before = kNone, after = kNone;  // Neighbours in the order of use.
  };

  EntryIndex index_of_block(const Touch& touch);
  // A list of the blocks at the node by last use, the least recent first.
  struct UseList {
    EntryIndex first = kNone, last = kNone;
    Bytes size{0};
  };
  UseList& list_of(const Entry& entry) { return entry.size <= kSmallReplica ? small_ : large_; }
  void link_in(EntryIndex index);
  void take_out(EntryIndex index);
  EntryIndex oldest(const UseList& list) const;
  EntryIndex victim();
  void make_room(Bytes size);
  void remove(EntryIndex index, double free_at);
  double copy_seconds(Bytes size) const;
  void mark(std::span<const Touch> touches);
  // The time from which the engine knows that an operator's kernels are done.
  double done_at(uint64_t operation) const;

  Speed speed_;
  const std::unique_ptr<EvictionPolicy> policy_;
  Bytes space_{0};
  FreeSpaceClock free_{0};
  std::unordered_map<Name, EntryIndex> indices_;
  std::vector<Entry> entries_;
  std::vector<EntryIndex> unused_;
  std::vector<EntryIndex> operands_;  // Of the current operator.
  UseList large_, small_;
  size_t hand_ = 0;
  uint64_t now_ = 0;  // Operators so far.
  double in_free_ = 0, out_free_ = 0;
  // The events that the engine records and keeps (residency/block/stamps.h, device/marks.h). A copy out of a
  // block whose last operator is older than all of them waits for the oldest.
  struct Mark {
    uint64_t operation = 0;
    double seconds = 0;
  };
  static constexpr size_t kMarks = 128;
  static constexpr int64_t kFew = 32;
  static constexpr Bytes kMuch = MiB(1);
  std::array<Mark, kMarks> marks_{};
  size_t next_mark_ = 0;
  int64_t unmarked_ = 0;  // Operators since the last mark.
  Bytes written_{0};      // Bytes written since the last mark.
  Cost cost_;
};

}  // namespace innkeeper::plan
