// How far a node's compute queue is, by its clock.
#pragma once

namespace innkeeper {

// Seconds.
struct ComputeTime {
  double now = 0;      // when all work put on the queue so far is done
  double kernels = 0;  // what of that takes by itself, without what it waits for
};

}  // namespace innkeeper
