#include "plan/schedule_trial.h"

#include <algorithm>

namespace innkeeper::plan {

bool ScheduleTrial::ended(int64_t operators, NodeId node, std::span<const Touch> touches,
                          const OperatorTime& time, Bytes arrived) {
  std::unique_ptr<OnDemand>& here = models_[index_of(node)];
  if (here == nullptr) {
    here = std::make_unique<OnDemand>(engine_.about(node).speed);
    models_end_ = std::max(models_end_, index_of(node) + 1);
  }
  Score::Count now{.operators = operators, .clock = 0, .arrived = arrived};
  clocks_[index_of(node)] = time.clock;
  bool timed = true;
  for (size_t i = 0; i < models_end_; ++i) {
    OnDemand* const model = models_[i].get();
    if (model == nullptr) continue;
    if (operators % kLookEvery == kLookFirst) {
      const NodeId id{static_cast<uint8_t>(i)};
      model->set_space(engine_.free_space(id));
      model->set_speed(engine_.about(id).speed);
    }
    if (i == index_of(node)) {
      model->ended(touches, time.kernels);
    } else {
      for (const Touch& touch : touches)
        if (touch.write) model->written_elsewhere(touch.block);
    }
    now.clock += clocks_[i];
    timed = timed && clocks_[i] > 0;
    now.model_clock += model->cost().seconds;
    now.model_arrived += model->cost().arrived;
  }
  if (!timed) now.clock = 0;
  const bool suspended = score_.suspended();
  score_.count(now);
  return score_.suspended() != suspended;
}

void ScheduleTrial::died(Name name) {
  for (size_t i = 0; i < models_end_; ++i)
    if (models_[i] != nullptr) models_[i]->died(name);
}

}  // namespace innkeeper::plan
