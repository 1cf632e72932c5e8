// A planner without an engine, for tests: blocks are only names, and orders are only counted.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "plan/planner.h"
#include "support/touches.h"

namespace innkeeper::plan {

class ProgramTracker {
 public:
  explicit ProgramTracker(Bytes space) : ProgramTracker([space](NodeId) { return space; }) {}
  explicit ProgramTracker(std::function<Bytes(NodeId)> space, Planner::RunInBackground run_in_background = {},
                          NodeId backing = kNoNode)
      : planner(
            std::move(space), [backing](NodeId) { return AboutNode{.name = "a GPU", .backing = backing}; },
            std::move(run_in_background)) {}

  Name meet() {
    fake_ += 64;
    return planner.meet(reinterpret_cast<Block*>(fake_));
  }
  int op(std::vector<Touch> touches) {
    clock += step;
    planner.ended(kGpu, touches, {.kernels = kernel, .clock = clock});
    int orders = 0;
    for (Order order; planner.next(order);) ++orders;
    return orders;
  }

  Planner planner;
  double clock = 0;  // Seconds; unchanged while an operator takes none.
  double step = 0;
  double kernel = 0;  // Time of an operator's kernels, seconds.

 private:
  uintptr_t fake_ = 0;
};

}  // namespace innkeeper::plan
