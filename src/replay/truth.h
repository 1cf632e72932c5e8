// Simulated machines that differ from the cost model by factors drawn from a seed. They test plans that are
// made with modelled kernel times (`innkeeper replay --times model --truth SEED`).
#pragma once

#include <cstdint>

#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "trace/record.h"

namespace innkeeper::replay {

// Each kind of kernel, by its operator and the power of two of its bytes, takes between half and twice as
// long as the model says, drawn evenly on a logarithmic scale.
trace::Record with_true_kernels(const trace::Record& record, uint64_t seed);

// The card's memory and the link reach 0.6 to all of what they were made for. A probe measures these two, so
// the model knows them.
cost::GpuModel with_true_memory(cost::GpuModel card, uint64_t seed);
cost::LinkModel with_true_bandwidth(cost::LinkModel link, uint64_t seed);

}  // namespace innkeeper::replay
