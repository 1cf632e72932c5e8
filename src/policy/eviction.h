// Decides which replicas leave first. A policy is a pure function over plain views: it holds no lock, touches
// no block and can be run on recorded traces unchanged.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/types.h"
#include "policy/reuse_history.h"

namespace innkeeper {

// Parameters of a node's choice of a victim in addition to the order of keys. The engine's index
// (residency/block/victim_index.h) and the planner's model of it (plan/on_demand.h) share these.
inline constexpr Bytes kSmallReplica = KiB(64);  // Copied in some 3 us; starting the copy takes 10.
inline constexpr int64_t kSmallShare = 16;  // Small replicas stay while they take 1/16 of the budget or less.
inline constexpr size_t kVictimLooks = 16;  // Replicas compared with the first one.

// A policy's view of a replica.
struct EvictionView {
  Bytes size{0};
  uint64_t last_use = 0;            // The engine's operator count at its last use.
  bool spare = false;               // True: another valid replica exists, so leaving costs no copy.
  ReuseHistory reuse_history = {};  // History of its returns.
};

// Replicas leave in the order of their keys, the least first. Among replicas of one rank the order is
// arbitrary, and may be that of an earlier moment.
struct EvictionKey {
  uint64_t rank = 0;
  uint64_t among_equals = 0;
  friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  // Returns a replica's key. Its rank never falls while the replica stays where it is.
  virtual EvictionKey key(const EvictionView& replica) const = 0;
  // Returns the predicted time of the replica's next use, later than `now`; 0: no prediction.
  //
  // If the first replica in the order of keys has a prediction, a spare with a later predicted use
  // leaves instead. Only a spare may: a replica that must be copied out right after its use would have
  // to be waited for.
  virtual uint64_t next_use(const EvictionView& /*replica*/, uint64_t /*now*/) const { return 0; }
};

// Least recently used first; of two that were last used by the same operator the spare one, then the larger.
std::unique_ptr<EvictionPolicy> make_lru_policy();
// As above, with predictions for replicas that returned before (reuse_history.h). If a program repeats a
// period that nearly fits, a part of it therefore stays, while by the order of use none would.
std::unique_ptr<EvictionPolicy> make_reuse_distance_policy();

}  // namespace innkeeper
