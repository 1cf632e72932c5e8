// Which replicas leave first. A policy is a pure function over plain views: it holds no lock, touches no
// block and can be run on recorded traces as it is.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/types.h"

namespace innkeeper {

// What a policy is told of a replica.
struct EvictionView {
  Bytes size{0};
  uint64_t last_use = 0;  // the engine's operator count when it was last used
  bool spare = false;     // another valid replica exists, so leaving costs no copy
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
};

// Least recently used first; of two that were last used by the same operator the spare one, then the larger.
std::unique_ptr<EvictionPolicy> make_lru_policy();

}  // namespace innkeeper
