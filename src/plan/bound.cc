#include "plan/bound.h"

#include <algorithm>

namespace innkeeper::plan {

namespace {

Bytes excess(const std::vector<int64_t>& steps, Bytes space) {
  if (steps.empty()) return Bytes(0);
  return std::max(Bytes(*std::max_element(steps.begin(), steps.end())) - space, Bytes(0));
}

}  // namespace

Bytes live_excess(const Uses& uses, Bytes space) { return excess(uses.working_set, space); }

Bytes shortage(const Uses& uses, Bytes space) { return excess(uses.alive, space); }

}  // namespace innkeeper::plan
