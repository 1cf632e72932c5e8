// Preferred nodes and experiments: the node on which a thread's tensors without operands are made, and the
// random stream from which the thread draws.
//
// A thread's preferred node ("home") is assigned at its first use. It is the computing node that the fewest
// threads and experiments prefer; in a process of torchrun's, the node that its LOCAL_RANK numbers. The
// assignment ends with the thread or the experiment. With a device index per node (device_index.h), it is the
// node of the thread's current index, and choosing another one makes its index the current one. State is the
// calling thread's; backward passes stay on the thread that called them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/types.h"

namespace innkeeper::torch_layer {

NodeId home_node();
// kNoNode: assign one at the next use. Returns the previous preferred node, kNoNode if there was none yet.
NodeId exchange_home(NodeId node);
// Number of threads and experiments that prefer `node`.
int homes_at(NodeId node);
// Invalidates all assignments; called by configure(), because they belong to another machine.
void forget_homes();

}  // namespace innkeeper::torch_layer
