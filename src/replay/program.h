// The last steps of a record, analysed by the record alone. The analysis finds the forward, backward
// and optimizer parts of a step, and the role of each block. Rules that move blocks by role
// (alternatives.h) use them.
//
//   the optimizer's part   from the first operator that writes a lasting block that the step had read before:
//                          a parameter. (Statistics of a batch are written, but not read before.)
//   the turn               the operator with the most live bytes that the step itself made, gradients aside:
//                          there, or a few operators beside, forward ends and backward begins.
//
// The analysis uses no operator names. A step without an optimizer's part, as in inference, is all forward
// and backward, and its lasting blocks are all parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "trace/record.h"

namespace innkeeper::replay {

enum class Role : uint8_t {
  other,      // Dies before it matters.
  parameter,  // Lasts, and is touched before the optimizer's part, or never.
  state,      // Lasts, and is touched in the optimizer's part alone.
  gradient,   // Made before the optimizer's part and used in it.
  saved,      // Made before the turn and used after it: an activation that backward needs.
};

inline size_t index(int64_t at) { return static_cast<size_t>(at); }  // Index of an operator or a step.

struct TensorUse {
  int64_t at = 0;  // Ordinal of the operator.
  bool write = false;
};

struct Tensor {
  int64_t bytes = 0;
  Role role = Role::other;
  bool lasts = false;    // Alive from before the first step to behind the last.
  bool trained = false;  // True: a parameter that the optimizer's part writes.
  int64_t step = 0;      // Step in which it was made; 0 if it lasts.
  int64_t born = 0;      // First operator at which it is alive.
  int64_t died = 0;      // Last operator at which it is alive.
  std::vector<TensorUse> uses = {};
};

// Parts of a step, whose operators are `begin` up to `end`, exclusive.
struct Parts {
  int64_t begin = 0;
  int64_t turn = 0;       // Last operator of the forward part.
  int64_t optimizer = 0;  // First operator of the optimizer's part; `end` if there is none.
  int64_t end = 0;
};

struct RecordedProgram {
  std::vector<double> kernels;  // Seconds by operator.
  std::vector<Tensor> tensors;
  std::vector<Parts> steps;
};

// Returns the last `steps` steps of the record, or as many as there are, with the kernel times of that GPU.
RecordedProgram last_steps(const trace::AccessRecord& record, const cost::GpuModel& gpu, size_t steps);

}  // namespace innkeeper::replay
