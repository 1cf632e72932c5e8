// Leasing for this process as it is: the machine's GPUs by telemetry, and only those that the process was
// given. What libraries call; the rest of src/lease knows neither the machine nor the environment.
//
//   Request request;
//   request.memory = GiB(20);
//   request.allowed = given_here().value();
//   Result<Lease> lease = acquire_here(request);
#pragma once

#include <string>
#include <vector>

#include "lease/arbiter.h"
#include "telemetry/snapshot.h"

namespace innkeeper::lease {

// What this process may choose from: once CUDA is started in it, the cards that CUDA sees, by ordinal; before
// that, what CUDA_VISIBLE_DEVICES says. Fails (unavailable) if there is none, or if the variable's indices
// cannot be resolved, with the cure.
Result<std::vector<std::string>> given_here();
// The same with another text in place of the variable's, as it was before somebody set it; none: it was not
// set.
Result<std::vector<std::string>> given_here(std::optional<std::string> visible_devices,
                                            const telemetry::Snapshot& cards);

// Waits as the request says, with a snapshot for each attempt. Fails as Arbiter::acquire does; where no GPU
// can be seen at all with what the driver says. Blocks.
Result<Lease> acquire_here(const Request& request, const Arbiter::Cancelled& cancelled = nullptr);

// Changes what a shared lease has of each of its cards (Arbiter::resize).
Status resize_here(Lease& lease, Bytes each);

}  // namespace innkeeper::lease
