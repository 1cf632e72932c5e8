// The c10d backend of the managed device: hands collectives on managed tensors to another backend (Gloo), as
// real tensors on the host.
//
// Collectives are asynchronous as the other backend's are: a work object ends, and its future is fulfilled,
// when the other's has ended and the tensors are the engine's again. Errors and timeouts are the other's own.
//
// Point to point messages go by a copy: their works have no future, so nobody would know when to give a
// tensor back that its program never waits for. What was received is there when its work has been waited for.
//
// Thread safety: as c10d's backends: one thread at a time calls a group's collectives.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// `inner`: a backend that takes CPU tensors. It may serve CPU tensors of the same group at the same time.
IK_EXPORT c10::intrusive_ptr<c10d::Backend> make_process_group(c10::intrusive_ptr<c10d::Backend> inner);

}  // namespace innkeeper::torch_layer
