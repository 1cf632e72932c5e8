// The c10d backend of the managed device: hands collectives on managed tensors to another backend, as real
// tensors: to Gloo on the host, or to NCCL on the processes' cards.
//
// Collectives are asynchronous as the other backend's are: a work object ends, and its future is fulfilled,
// when the other's has ended and the tensors are the engine's again. Errors and timeouts are the other's own.
//
// Point to point messages go by a copy: their works have no future, so there is no moment to give a
// tensor back that its program never waits for. What was received is there when its work has been waited for.
//
// Thread safety: as c10d's backends: one thread at a time calls a group's collectives.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// A backend for tensors of this process's node of that name.
struct CardBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::string node;
};
// Asked once, by the first collective that could go between cards, in every process of the group at the same
// collective. Nothing where some process has no card of its own.
using MakeCards = std::function<std::optional<CardBackend>()>;

// `inner`: a backend that takes CPU tensors. It may serve CPU tensors of the same group at the same time.
IK_EXPORT c10::intrusive_ptr<c10d::Backend> make_process_group(c10::intrusive_ptr<c10d::Backend> inner,
                                                               MakeCards make_cards = nullptr);

}  // namespace innkeeper::torch_layer
