// From a request to a lease, as pick, run and lease hold do it: only cards that this process was given
// (CUDA_VISIBLE_DEVICES and its kin), a part of the lease that it runs in (INNKEEPER_LEASE), waiting in line
// if asked.
#pragma once

#include "lease/arbiter.h"
#include "lease/lease.h"
#include "lease/request.h"
#include "telemetry/snapshot.h"

namespace innkeeper::cli {

// Fails as exit_codes.h says. Blocks: as long as the request waits.
lease::Lease grant(lease::Arbiter& arbiter, lease::Request request);

// The machine's folder, or fails with kFolder.
lease::Arbiter open_arbiter();

}  // namespace innkeeper::cli
