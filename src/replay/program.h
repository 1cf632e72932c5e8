// The last steps of a record, told apart by the record alone: which part of a step is forward, backward and
// the optimizer's, and what each block is for. Rules that move by kind of tensor (alternatives.h) are given
// these.
//
//   the optimizer's part   from the first operator that writes a lasting block which the step had read before
//                          it: a parameter. (Statistics of a batch are written, but not read before.)
//   the turn               where most bytes are alive that the step made itself, gradients aside: there
//                          forward ends and backward begins, or a few operators beside.
//
// Nothing here knows an operator's name. A step without an optimizer's part, as inference has, is all forward
// and backward, and its lasting blocks are all parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "trace/record.h"

namespace innkeeper::replay {

enum class Role : uint8_t {
  other,      // dies before it is of interest
  parameter,  // lasts, and is touched before the optimizer's part, or never
  state,      // lasts, and is touched in the optimizer's part alone
  gradient,   // made before the optimizer's part and used in it
  saved,      // made before the turn and used behind it: an activation that backward wants
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
  bool trained = false;  // the optimizer's part writes it, and it is a parameter
  int64_t step = 0;      // Step in which it was made; 0 if it lasts.
  int64_t born = 0;      // alive from this operator on
  int64_t died = 0;      // the last operator at which it is alive
  std::vector<TensorUse> uses = {};
};

// Of a step: the operators from `begin` up to `end`.
struct Parts {
  int64_t begin = 0;
  int64_t turn = 0;       // the last of the forward part
  int64_t optimizer = 0;  // the first of its part; `end` if there is none
  int64_t end = 0;
};

struct RecordedProgram {
  std::vector<double> kernels;  // Seconds by operator.
  std::vector<Tensor> tensors;
  std::vector<Parts> steps;
};

// The last `steps` steps of the record, or as many as there are, on that card.
RecordedProgram last_steps(const trace::AccessRecord& record, const cost::GpuModel& card, size_t steps);

}  // namespace innkeeper::replay
