// The one place where leasing uses telemetry: extracts the data that the protocol needs from a snapshot.
#pragma once

#include "lease/gpu.h"
#include "lease/request.h"
#include "telemetry/snapshot.h"

namespace innkeeper::lease {

// Returns the readings that a request needs from the driver. Processes are always needed: without them a
// lease with allocated memory would count twice until it has warmed up.
telemetry::Wanted wanted_for(const Request& request);

// Returns the GPUs that can be leased: a GPU, or with MIG its instances. Lost GPUs are left out. Reads /proc
// for the processes' ancestors: never call it under a lock.
Machine from_snapshot(const telemetry::Snapshot& snapshot);

}  // namespace innkeeper::lease
