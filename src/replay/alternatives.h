// The methods in use today for models that do not fit. Each is a fixed rule for which tensors are elsewhere
// and when, applied to a record (program.h) on the simulated machine (trips.h):
//
//   modules      module by module: parameters, their gradients and the optimizer's state are at the host, and
//                come for the module that is computed; the next one's are prefetched concurrently. As
//                accelerate's cpu_offload, diffusers' group offload and block swapping. Activations stay.
//   activations  only saved activations leave, after forward's last use of them, and come back for backward's
//                first, prefetched too. As torch.autograd.graph.save_on_cpu, which copies without
//                overlap and hence takes longer. Parameters, gradients and state stay.
//   optimizer    the optimizer's state is at the host, and comes for the step; or the host makes the step:
//                gradients leave once they are made, and parameters come back from it. Parameters stay
//                otherwise, or come for forward and backward too. As ZeRO-Offload and FSDP2's CPU
//                offload.
//
// Each method gets the benefit of the doubt:
//   - The record tells it each tensor's last and next use. A module is a stretch of operators; of several
//     lengths the fastest counts. The next module, or several, are prefetched as free space allows. Tensors
//     that the next module uses too stay; unwritten tensors are not copied out.
//   - Copies overlap kernels in both directions, at the link's full rate; hooks and allocators cost no time.
//   - `modules` moves as many tensors as is fastest (the first used), and so does `activations` (the first
//     made). `optimizer` is all or nothing, the fastest of the forms above.
//   - The host's step touches each value once, at its memory's bandwidth, and a parameter comes back while
//     the host makes the next. The program waits for it, as with these methods: a late parameter would change
//     the result.
//   - If all tensors fit, none moves.
// Not modelled: combinations of the methods, recomputed activations, lower precision of tensors elsewhere,
// and that save_on_cpu also moves parameters that backward needs.
#pragma once

#include <optional>

#include "base/types.h"
#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "replay/player.h"
#include "replay/program.h"

namespace innkeeper::replay {

// Default for the bytes per second that the host touches in the optimizer's step. It is the bandwidth of
// Grace's 480 GB of LPDDR5X, and exceeds the 461 GB/s of a socket with twelve channels of DDR5-4800. Eight
// channels have 307, eight of DDR4-3200 205, and a desktop's two of DDR5-5600 90.
constexpr double kHostBandwidth = 500e9;

struct Alternative {
  Bytes least{0};                     // Memory below which the method does not fit.
  std::optional<StepCost> cost = {};  // Cost of a step; none: the rule does not fit.
  bool by_host = false;               // True (`optimizer` only): the host makes the step.
};

struct Alternatives {
  Alternative modules, activations, optimizer;
};

// Requires: four steps.
Alternatives alternatives(const RecordedProgram& program, const cost::LinkModel& link, Bytes space,
                          double host_bandwidth = kHostBandwidth);

}  // namespace innkeeper::replay
