// What a program would have cost so far if nothing had been planned for it: a model of one node at which each
// block moves when an operator asks for it. The planner compares what its plans cost with this (score.h). A
// program that varies has no other measure: no two of its steps need be alike.
//
// The model runs behind the program, operator by operator, with what the planner is told anyway. It evicts in
// the order in which the engine does (policy/eviction.h), copies in and out over one link each way, and lets
// an operator wait for its operands and for the room that its victims give back. It is cheaper than the
// engine, not exact: score.h compares its times by their ratio to the node's clock.
//
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/room_clock.h"
#include "base/types.h"
#include "plan/history.h"
#include "plan/speed.h"
#include "policy/eviction.h"

namespace innkeeper::plan {

class OnDemand {
 public:
  // Since the beginning.
  struct Cost {
    double seconds = 0;  // 0 where nobody knows how long kernels take
    Bytes arrived{0};
  };

  explicit OnDemand(const Speed& speed) : speed_(speed), policy_(make_returns_policy()) {}

  // Bytes that the program's blocks may have.
  void set_room(Bytes room);
  // `seconds`: of its kernels.
  void ended(std::span<const Touch> touches, double seconds);
  void died(Name name);
  // An operator at another node has written it: what is here is out of date.
  void written_elsewhere(Name name);

  const Cost& cost() const { return cost_; }

 private:
  using Place = uint32_t;
  static constexpr Place kNone = UINT32_MAX;
  static constexpr size_t kLooks = 16;      // as VictimIndex::kLooks
  static constexpr Bytes kSmall = KiB(64);  // likewise,
  static constexpr int64_t kSmallShare = 16;
  static constexpr double kLatency = 10e-6;  // of a copy

  // A block that this node has, or had.
  struct Entry {
    Name name = 0;
    Bytes size{0};
    bool there = false;
    bool spare = false;  // the host has its bytes
    bool stays = false;
    uint64_t last_use = 0;  // operators
    Returns returns = {};
    Place before = kNone, after = kNone;  // in the order of use, of those that are there
  };

  Place place_of(const Touch& touch);
  // Of the blocks that are there, the one that was used longest ago, and the one that was used last.
  struct Order {
    Place first = kNone, last = kNone;
    Bytes size{0};
  };
  Order& order_of(const Entry& entry) { return entry.size <= kSmall ? small_ : large_; }
  void link_in(Place place);
  void take_out(Place place);
  Place oldest(const Order& order) const;
  Place victim();
  void make_room(Bytes size);
  void remove(Place place, double free_at);
  double copy_seconds(Bytes size) const;
  void mark(std::span<const Touch> touches);
  // When an operator's kernels are known to be done.
  double done_at(uint64_t operation) const;

  const Speed speed_;
  const std::unique_ptr<EvictionPolicy> policy_;
  Bytes room_{0};
  RoomClock free_{0};
  std::unordered_map<Name, Place> places_;
  std::vector<Entry> entries_;
  std::vector<Place> unused_;
  Order large_, small_;
  size_t hand_ = 0;
  uint64_t now_ = 0;  // operators
  double in_free_ = 0, out_free_ = 0;
  // Events as the engine records them (residency/stamps.h), of which it keeps so many.
  struct Mark {
    uint64_t operation = 0;
    double seconds = 0;
  };
  static constexpr size_t kMarks = 128;
  static constexpr int64_t kFew = 32;
  static constexpr Bytes kMuch = MiB(1);
  std::array<Mark, kMarks> marks_{};
  size_t next_mark_ = 0;
  int64_t unmarked_ = 0;  // operators since the last one,
  Bytes written_{0};      // and what they wrote
  Cost cost_;
};

}  // namespace innkeeper::plan
