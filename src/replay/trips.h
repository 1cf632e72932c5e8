// What steps take in which given tensors are elsewhere at given times: a small event simulation with one
// queue of kernels and one of copies in each direction, each in order, whatever the others do. Times are
// those of sim/clock.h. A rule (alternatives.h) says which trips there are.
//
//   - A trip that is copied out begins right behind its operator; its room is there once the copy is made.
//   - It is fetched beside `from` at the earliest, or later, as soon as its bytes are room from then on until
//     they are wanted; the operator that wants it waits for it.
//   - A new tensor's operator waits for room that copies are about to give.
// So steps fit if what each operator needs at the least fits, and never fail for having fetched too early.
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

// A tensor is not at the card behind one of its uses and before another.
struct TensorTrip {
  size_t tensor = 0;
  int64_t leaves = kNone;   // Operator behind which it leaves; kNone: it begins elsewhere.
  bool copied = false;      // out, since it was written
  int64_t returns = kNone;  // Operator before which it returns; kNone: it does not.
  int64_t from = 0;         // the first operator beside which it may be fetched; behind `leaves`
  bool keeps_room = false;  // the card's bytes are stale, not gone
  // The part of the host's work at the end of the step in which it left that must be done before it returns:
  // what is fetched beside the next step's first operator comes while the host does the rest. Above 0 only if
  // `from` is in that step.
  double of_host = 0;
};

struct Course {
  std::vector<TensorTrip> trips = {};
  std::vector<bool> never_there = {};  // tensors that no operator of the card touches; empty: none
  // The host's work at the end of each step, once all copies out are made. The program waits for it.
  double host_seconds = 0;
};

// The most bytes that are at the card at once if all is fetched at the last moment.
Bytes least_room(const RecordedProgram& program, const Course& course);

// Of a step: the mean of the two before the last. Those before are on the way to it, and the last one has no
// next for which it fetches. Requires: least_room() fits, four steps.
StepCost cost(const RecordedProgram& program, const Course& course, const cost::LinkModel& link, Bytes room);

}  // namespace innkeeper::replay
