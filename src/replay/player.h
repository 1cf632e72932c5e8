// Plays a record on an engine with a simulated GPU that holds no data. It estimates a recorded program's time
// on any GPU with any budget. The engine, its policy and its plans are those that programs use.
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

// Source of the plans' knowledge of kernel times.
struct KernelTimes {
  enum class By : uint8_t {
    gpu,    // The GPU reports the times, and its clock is known.
    model,  // The GPU's clock is known; a model gives each kernel's time.
    none,   // Kernels and clock are unknown, and plans count bytes.
  };
  By by = By::gpu;
  // For By::model: the same operators with the work that the model assumes.
  const trace::AccessRecord* model = nullptr;
  // Time that the host takes to launch each kernel, s; 0: none.
  double host_seconds = 0;
  bool one_clock = false;  // True: plans do not know the host's clock.
};

struct Setup {
  cost::GpuModel gpu = cost::default_gpu();
  cost::LinkModel link = cost::default_host_link();
  Bytes budget{0};  // Budget of the GPU; 0: enough for all.
  bool planning = true;
  bool recompute = false;  // True: blocks may be discarded and recomputed.
  std::unique_ptr<EvictionPolicy> (*policy)() = make_reuse_distance_policy;
  KernelTimes times = {};
};

struct StepCost {
  double seconds = 0;  // Virtual time of the GPU.
  Bytes in{0};         // Bytes over the link.
  Bytes out{0};
};

// Peak of the blocks' bytes at the host, and of the memory that was held for them.
struct HostUse {
  Bytes used{0};
  Bytes held{0};
};

struct Played {
  std::vector<StepCost> steps;
  int64_t operators = 0;
  Bytes peak{0};  // Peak at the GPU.
  HostUse host = {};
  Bytes bound{0};  // Lower bound on the bytes that arrive in a period, if one was planned (plan/bound.h).
};

// Fails as the program would: an operator that does not fit gives out_of_memory.
Result<Played> play(const trace::AccessRecord& record, const Setup& setup);

// Returns the work of an operator's kernels; one kernel that touches its operands once if the
// record has none.
trace::Work work_of(const trace::AccessRecord& record, const trace::RecordEntry& operation);
// Returns the time of these kernels alone.
double seconds_of(const trace::AccessRecord& record, const trace::RecordEntry& operation,
                  const cost::GpuModel& gpu);
// Returns the kernels' seconds of each step.
std::vector<double> kernel_seconds(const trace::AccessRecord& record, const cost::GpuModel& gpu);

}  // namespace innkeeper::replay
