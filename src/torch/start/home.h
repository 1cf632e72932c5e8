// Homes and experiments: where a thread's tensors without operands are born, and which random stream it draws
// from.
//
// A home is assigned at the first use, to the computing node that the fewest threads and experiments call
// home; in a process of torchrun's, to the one that its LOCAL_RANK numbers. It is given back when the thread
// or the experiment ends. With a device index per node (device_index.h) the home is the node of the thread's
// current index, and choosing a home makes its index the current one. State is the calling thread's; backward
// passes stay on the thread that called them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/types.h"

namespace innkeeper::torch_layer {

NodeId home_node();
// kNoNode: assign again at the next use. Returns the previous home, kNoNode if there was none yet.
NodeId exchange_home(NodeId node);
// How many threads and experiments call `node` home.
int homes_at(NodeId node);
// All homes were of another machine: configure() calls this.
void forget_homes();

}  // namespace innkeeper::torch_layer
