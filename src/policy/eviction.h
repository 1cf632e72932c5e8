// Which replicas leave first. A policy is a pure function over plain views: it holds no lock, touches no
// block and can be run on recorded traces as it is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/types.h"

namespace innkeeper {

// One replica that may leave: unpinned, and no copy of it is under way.
struct EvictionCandidate {
  uint64_t tag = 0;  // the caller's, untouched
  Bytes size{0};
  uint64_t last_use = 0;  // the engine's operator count when it was last used
  bool spare = false;     // another valid replica exists, so leaving costs no copy
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  // Moves the victims to the front, the first to leave first, until their sizes sum to `shortfall` or all are
  // taken. Returns how many they are.
  virtual size_t choose(std::span<EvictionCandidate> candidates, Bytes shortfall) const = 0;
};

// Least recently used first; of two that were last used by the same operator the spare one, then the larger.
std::unique_ptr<EvictionPolicy> make_lru_policy();

}  // namespace innkeeper
