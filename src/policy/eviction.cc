#include "policy/eviction.h"

#include <algorithm>

namespace innkeeper {
namespace {

bool leaves_before(const EvictionCandidate& a, const EvictionCandidate& b) {
  if (a.last_use != b.last_use) return a.last_use < b.last_use;
  if (a.spare != b.spare) return a.spare;
  return a.size > b.size;
}

class LruPolicy final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "lru"; }

  // A heap, because few of many candidates leave at a time: O(n + k log n).
  size_t choose(std::span<EvictionCandidate> candidates, Bytes shortfall) const override {
    const auto later = [](const EvictionCandidate& a, const EvictionCandidate& b) {
      return leaves_before(b, a);
    };
    std::make_heap(candidates.begin(), candidates.end(), later);
    Bytes found{0};
    auto heap_end = candidates.end();
    while (found < shortfall && heap_end != candidates.begin()) {
      std::pop_heap(candidates.begin(), heap_end, later);
      --heap_end;
      found += heap_end->size;
    }
    const auto chosen = static_cast<size_t>(candidates.end() - heap_end);
    std::reverse(heap_end, candidates.end());
    std::rotate(candidates.begin(), heap_end, candidates.end());
    return chosen;
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_policy() { return std::make_unique<LruPolicy>(); }

}  // namespace innkeeper
