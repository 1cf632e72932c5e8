// What a test does while the engine asks for a key, with its lock held: when victims are being chosen,
// before it closes any, and when it lists what was born.
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
