#include "plan/bound.h"

#include <algorithm>

namespace innkeeper::plan {

namespace {

Bytes excess(const std::vector<int64_t>& steps, Bytes room) {
  if (steps.empty()) return Bytes(0);
  return std::max(Bytes(*std::max_element(steps.begin(), steps.end())) - room, Bytes(0));
}

}  // namespace

Bytes live_excess(const Uses& uses, Bytes room) { return excess(uses.working_set, room); }

Bytes shortage(const Uses& uses, Bytes room) { return excess(uses.alive, room); }

}  // namespace innkeeper::plan
