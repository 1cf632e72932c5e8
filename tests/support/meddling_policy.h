// Calls a test's function when the engine asks the policy for a key, with its lock held: during the choice of
// victims, before the engine closes any, and during the listing of new results.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "policy/eviction.h"

namespace innkeeper::test {

// Orders as LRU does, and calls `meddle` once.
class MeddlingPolicy final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "meddling"; }
  EvictionKey key(const EvictionView& replica) const override {
    if (meddle) std::exchange(meddle, {})();
    return lru_->key(replica);
  }

  inline static std::function<void()> meddle;

 private:
  const std::unique_ptr<EvictionPolicy> lru_ = make_lru_policy();
};

inline std::unique_ptr<EvictionPolicy> make_meddling_policy() { return std::make_unique<MeddlingPolicy>(); }

}  // namespace innkeeper::test
