// What people do today where a model does not fit, each a fixed rule about which tensors are elsewhere and
// when, as it would do with a record (program.h) on the simulated machine (trips.h):
//
//   modules      module by module: parameters, their gradients and the optimizer's state are at the host, and
//                come for the module that is computed; the next one's are prefetched beside it. As
//                accelerate's cpu_offload, diffusers' group offload and block swapping. Activations stay.
//   activations  saved activations alone leave after forward's last use of them and come back for backward's
//                first, prefetched too. As torch.autograd.graph.save_on_cpu, which copies without
//                overlap and hence takes longer. Parameters, gradients and state stay.
//   optimizer    the optimizer's state is at the host, and comes for the step; or the host makes the step:
//                gradients leave once they are made, and parameters come back from it. Parameters stay
//                otherwise, or come for forward and backward too. As ZeRO-Offload and FSDP2's CPU
//                offload.
//
// Each has the benefit of the doubt:
//   - It is told of each tensor's last and next use by the record. A module is a stretch of operators; of
//     several lengths the fastest counts. Prefetched is the next one, or several, as they have room. What the
//     next module uses too stays; what was not written is not copied out.
//   - Copies run beside kernels in both directions, at the link's full rate; hooks and allocators cost
//     nothing.
//   - `modules` moves as much as is fastest (what is used first), and so does `activations` (what is made
//     first). `optimizer` is all or nothing, the fastest of the forms above.
//   - The host's step touches each value once, at its memory's bandwidth, and a parameter comes back while it
//     makes the next. The program waits for it, as theirs do: what comes a step late computes something else.
//   - Where all fits, nothing moves.
// Not modelled: combinations of them, activations that are recomputed, lower precision of what is
// elsewhere, and that save_on_cpu moves parameters which backward wants as well.
#pragma once

#include <optional>

#include "base/types.h"
#include "cost/gpu_model.h"
#include "cost/link_model.h"
#include "replay/player.h"
#include "replay/program.h"

namespace innkeeper::replay {

// Bytes per second that the host touches when it makes the optimizer's step, unless told otherwise: as
// Grace's 480 GB of LPDDR5X, and more than the 461 GB/s of a socket with twelve channels of DDR5-4800. Eight
// have 307, eight of DDR4-3200 205, and a desktop's two of DDR5-5600 90.
constexpr double kHostBandwidth = 500e9;

struct Alternative {
  Bytes least{0};                     // room below which it does not fit
  std::optional<StepCost> cost = {};  // Cost of a step; none: the rule does not fit.
  bool by_host = false;               // `optimizer`: it is the host that makes the step
};

struct Alternatives {
  Alternative modules, activations, optimizer;
};

// Requires: four steps.
Alternatives alternatives(const RecordedProgram& program, const cost::LinkModel& link, Bytes room,
                          double host_bandwidth = kHostBandwidth);

}  // namespace innkeeper::replay
