// How far a node's compute queue is, by its clock, and how far the host is that puts work there.
#pragma once

namespace innkeeper {

// Seconds.
struct ComputeTime {
  double now = 0;      // Time at which all work on the queue so far is done.
  double kernels = 0;  // what of that takes by itself, without what it waits for
  double host = 0;     // the host's clock; 0 where a node's time does not depend on it
};

}  // namespace innkeeper
