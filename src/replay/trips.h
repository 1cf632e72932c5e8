// Cost of steps during which given tensors are elsewhere at given times. It is a small event simulation with
// one queue of kernels and one of copies in each direction, each in order and independent of the others.
// Times are those of sim/clock.h. A rule (alternatives.h) supplies the trips.
//
//   - A trip that is copied out begins right after its operator; its bytes are free once the copy is made.
//   - It is fetched beside `from` at the earliest, or later, as soon as its bytes are free from then on until
//     their use; the operator that uses it waits for it.
//   - A new tensor's operator waits for space that copies are about to free.
// Therefore steps fit if the minimum of each operator fits, and never fail because of a fetch
// that was too early.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "replay/player.h"
#include "replay/program.h"

namespace innkeeper::replay {

constexpr int64_t kNone = -1;

// An absence of a tensor from the GPU between two of its uses.
struct TensorTrip {
  size_t tensor = 0;
  int64_t leaves = kNone;     // Operator after which it leaves; kNone: it begins elsewhere.
  bool copied = false;        // True: it is copied out, because it was written.
  int64_t returns = kNone;    // Operator before which it returns; kNone: it does not.
  int64_t from = 0;           // First operator beside which it may be fetched; after `leaves`.
  bool keeps_memory = false;  // True: the GPU's bytes are stale, but stay allocated.
  // Share of the host's work at the end of the step in which it left that must be done before it returns. A
  // tensor fetched beside the next step's first operator arrives while the host does the rest. Above 0 only
  // if `from` is in that step.
  double of_host = 0;
};

struct Course {
  std::vector<TensorTrip> trips = {};
  std::vector<bool> never_there = {};  // Tensors that no operator of the GPU touches; empty: none.
  // Time of the host's work at the end of each step, after all copies out, s. The program waits for it.
  double host_seconds = 0;
};

// Returns the peak of the bytes on the GPU if all tensors are fetched at the last moment.
Bytes least_space(const RecordedProgram& program, const Course& course);

// Returns the cost of a step: the mean of the two before the last. Earlier steps approach the steady state,
// and the last one fetches for no next step. Requires: least_space() fits, four steps.
StepCost cost(const RecordedProgram& program, const Course& course, const cost::LinkModel& link, Bytes space);

}  // namespace innkeeper::replay
