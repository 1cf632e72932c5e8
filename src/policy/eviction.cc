#include "policy/eviction.h"

namespace innkeeper {
namespace {

class LruPolicy : public EvictionPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  EvictionKey key(const EvictionView& replica) const override {
    constexpr uint64_t kDirty = uint64_t{1} << 63;
    return {replica.last_use,
            (replica.spare ? 0 : kDirty) + (kDirty - 1 - static_cast<uint64_t>(replica.size.count()))};
  }
};

class ReuseDistancePolicy final : public LruPolicy {
 public:
  std::string_view name() const override { return "reuse-distance"; }
  uint64_t next_use(const EvictionView& replica, uint64_t now) const override {
    const uint64_t next = replica.reuse_history.next_use(replica.last_use);
    return next > now ? next : 0;
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_policy() { return std::make_unique<LruPolicy>(); }
std::unique_ptr<EvictionPolicy> make_reuse_distance_policy() {
  return std::make_unique<ReuseDistancePolicy>();
}

}  // namespace innkeeper
