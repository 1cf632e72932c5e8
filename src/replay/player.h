// Plays a record on an engine with a simulated card that holds no data: what a program that was recorded once
// would take on any card, with any room. The engine, its policy and its plans are those that programs use.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "policy/eviction.h"
#include "trace/record.h"

namespace innkeeper::replay {

// How plans know what kernels take.
struct KernelTimes {
  enum class By : uint8_t {
    card,   // It tells, and its clock is known.
    model,  // Its clock is known; a model says what each kernel takes.
    none,   // Kernels and clock are unknown, and plans count bytes.
  };
  By by = By::card;
  // By a model: the same operators with the work that it takes them for.
  const trace::AccessRecord* model = nullptr;
  // The host takes so long to launch each kernel; 0: no time.
  double host_seconds = 0;
  bool one_clock = false;  // Plans do not know the host's.
};

struct Setup {
  cost::GpuModel card = cost::default_gpu();
  cost::LinkModel link = cost::default_host_link();
  Bytes budget{0};  // Budget of the GPU; 0: enough for all.
  bool planning = true;
  bool recompute = false;  // blocks may be dropped and computed again
  std::unique_ptr<EvictionPolicy> (*policy)() = make_reuse_distance_policy;
  KernelTimes times = {};
};

struct StepCost {
  double seconds = 0;  // Virtual time of the GPU.
  Bytes in{0};         // over the link
  Bytes out{0};
};

// What blocks took at the host at most, and the memory that was held for them.
struct HostUse {
  Bytes used{0};
  Bytes held{0};
};

struct Played {
  std::vector<StepCost> steps;
  int64_t operators = 0;
  Bytes peak{0};  // Peak at the GPU.
  HostUse host = {};
  Bytes bound{0};  // the least that arrives in a period, where one was planned (plan/bound.h)
};

// Fails as the program would: an operator that does not fit is out_of_memory.
Result<Played> play(const trace::AccessRecord& record, const Setup& setup);

// What an operator's kernels do; one kernel that touches its operands once where the record does not say.
trace::Work work_of(const trace::AccessRecord& record, const trace::RecordEntry& operation);
// What they take by themselves.
double seconds_of(const trace::AccessRecord& record, const trace::RecordEntry& operation,
                  const cost::GpuModel& card);
// Those of each step.
std::vector<double> kernel_seconds(const trace::AccessRecord& record, const cost::GpuModel& card);

}  // namespace innkeeper::replay
