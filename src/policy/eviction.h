// Which replicas leave first. A policy is a pure function over plain views: it holds no lock, touches no
// block and can be run on recorded traces as it is.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/types.h"
#include "policy/reuse_history.h"

namespace innkeeper {

// How a node chooses a victim beside the order of keys. The engine's index (residency/block/victim_index.h) and the
// planner's model of it (plan/on_demand.h) share these.
inline constexpr Bytes kSmallReplica = KiB(64);  // Copied in some 3 us; starting the copy takes 10.
inline constexpr int64_t kSmallShare = 16;  // Small replicas stay while they take 1/16 of the budget or less.
inline constexpr size_t kVictimLooks = 16;  // Replicas compared with the first one.

// What a policy is told of a replica.
struct EvictionView {
  Bytes size{0};
  uint64_t last_use = 0;            // the engine's operator count when it was last used
  bool spare = false;               // another valid replica exists, so leaving costs no copy
  ReuseHistory reuse_history = {};  // Its earlier stays and gaps.
};

// Replicas leave in the order of their keys, the least first. Among those with one rank the order is a matter
// of taste, and may be that of an earlier moment.
struct EvictionKey {
  uint64_t rank = 0;
  uint64_t among_equals = 0;
  friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  // A replica's rank never falls while it stays where it is.
  virtual EvictionKey key(const EvictionView& replica) const = 0;
  // When a replica will be used next, if there is reason to think so: later than `now`. 0: there is none.
  //
  // Where that is known of the first in the order of keys, a spare that will be used later leaves instead. A
  // spare only: what must be copied out first, right after it was used, is waited for.
  virtual uint64_t next_use(const EvictionView& /*replica*/, uint64_t /*now*/) const { return 0; }
};

// Least recently used first; of two that were last used by the same operator the spare one, then the larger.
std::unique_ptr<EvictionPolicy> make_lru_policy();
// As above, and the next use of a replica that came back before is known (policy/reuse_history.h). So where a
// program repeats itself and nearly fits, a part of its blocks stays; in the order of use none would.
std::unique_ptr<EvictionPolicy> make_reuse_distance_policy();

}  // namespace innkeeper
