// Compares a program's schedules with running without one, and suspends schedules that cost more.
//
// Each node that the program uses has a model of on-demand movement (on_demand.h), which is told each
// operator. The node's clock and its arriving bytes are compared with the models' (score.h).
//
// Ownership: the engine view must outlive it.
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/types.h"
#include "plan/engine_view.h"
#include "plan/history.h"
#include "plan/on_demand.h"
#include "plan/score.h"

namespace innkeeper::plan {

// Seconds; 0: unknown.
struct OperatorTime {
  double kernels = 0;
  double host = 0;   // Time since the operator before.
  double clock = 0;  // Clock of the node now; 0 also where other programs work there.
};

class ScheduleTrial {
 public:
  explicit ScheduleTrial(const EngineView& engine) : engine_(engine) {}

  // The operator number `operators`, counted from 1, has ended at a node. `arrived`: bytes of the program's
  // blocks that arrived at nodes where they are used, so far. Returns whether schedules were suspended or
  // resumed.
  bool ended(int64_t operators, NodeId node, std::span<const Touch> touches, const OperatorTime& time,
             Bytes arrived);
  // The block has died.
  void died(Name name);
  // A schedule for a period of `length` operators takes effect.
  void start(int64_t length) { score_.start(length); }
  // No moves of a schedule are to be ordered.
  bool suspended() const { return score_.suspended(); }

 private:
  // Operators between two looks at free space and speed, and before the first.
  static constexpr int64_t kLookEvery = 256;
  static constexpr int64_t kLookFirst = 16;

  const EngineView& engine_;
  std::array<std::unique_ptr<OnDemand>, kMaxNodes> models_;  // Null: the program does not use the node.
  size_t models_end_ = 0;                                    // All models have a lower index.
  std::array<double, kMaxNodes> clocks_{};                   // Clocks of the nodes; 0: unknown.
  Score score_;
};

}  // namespace innkeeper::plan
