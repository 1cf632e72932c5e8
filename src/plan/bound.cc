#include "plan/bound.h"

#include <algorithm>

namespace innkeeper::plan {

Bytes live_excess(const Uses& uses, Bytes room) {
  if (uses.wanted.empty()) return Bytes(0);
  return std::max(Bytes(*std::max_element(uses.wanted.begin(), uses.wanted.end())) - room, Bytes(0));
}

}  // namespace innkeeper::plan
