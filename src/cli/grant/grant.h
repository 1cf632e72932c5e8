// Turns a request into a lease for pick, run and lease hold. The lease is restricted to GPUs that this
// process was given (CUDA_VISIBLE_DEVICES and its kin). It is a part of the lease that the process runs in
// (INNKEEPER_LEASE). It waits in line if requested.
#pragma once

#include "lease/arbiter.h"
#include "lease/lease.h"
#include "lease/request.h"
#include "telemetry/snapshot.h"

namespace innkeeper::cli {

// Fails with a code of exit_codes.h. Blocks: as long as the request waits.
lease::Lease grant(lease::Arbiter& arbiter, lease::Request request);

// Opens the machine's lease directory, or fails with kDirectory.
lease::Arbiter open_arbiter();

}  // namespace innkeeper::cli
