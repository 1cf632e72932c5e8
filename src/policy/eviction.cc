#include "policy/eviction.h"

namespace innkeeper {
namespace {

class LruPolicy final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  EvictionKey key(const EvictionView& replica) const override {
    constexpr uint64_t kDirty = uint64_t{1} << 63;
    return {replica.last_use,
            (replica.spare ? 0 : kDirty) + (kDirty - 1 - static_cast<uint64_t>(replica.size.count()))};
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_policy() { return std::make_unique<LruPolicy>(); }

}  // namespace innkeeper
