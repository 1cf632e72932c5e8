// How far a node's compute queue has come, by its own clock, and how far the host thread that fills it.
#pragma once

namespace innkeeper {

// Seconds.
struct ComputeTime {
  double now = 0;      // Time at which all work on the queue so far is done.
  double kernels = 0;  // Part of `now` that kernels take, without their waits.
  double host = 0;     // The host's clock; 0 if the node's time does not depend on it.
};

}  // namespace innkeeper
