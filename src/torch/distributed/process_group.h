// The c10d backend of the managed device. It passes collectives on managed tensors to another backend, as
// real tensors: to Gloo on the host, or to NCCL on the processes' GPUs.
//
// Collectives are as asynchronous as the other backend's. A work ends, and its future is fulfilled, when the
// other work has ended and the engine has the tensors again. Errors and timeouts are the other backend's own.
//
// Point-to-point messages use a copy on the host. Their works have no future, so there is no moment at which
// a tensor could be released if its program never waits. A received tensor has its data when its program has
// waited for the work.
//
// Thread safety: as c10d's backends: one thread at a time calls a group's collectives.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// A backend for tensors of this process's node with that name.
struct GpuBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::string node;
};
// Called once, by the first collective that could go between GPUs, in every process of the group at the same
// collective. Returns nothing if some process has no GPU of its own.
using MakeGpus = std::function<std::optional<GpuBackend>()>;

// `inner`: a backend for CPU tensors. It may serve CPU tensors of the same group at the same time.
IK_EXPORT c10::intrusive_ptr<c10d::Backend> make_process_group(c10::intrusive_ptr<c10d::Backend> inner,
                                                               MakeGpus make_gpus = nullptr);

}  // namespace innkeeper::torch_layer
