// The one place where leasing meets telemetry: what the protocol needs, out of a snapshot.
#pragma once

#include "lease/card.h"
#include "lease/request.h"
#include "telemetry/snapshot.h"

namespace innkeeper::lease {

// What to ask the driver for a request. Processes are always wanted: without them a lease whose memory is
// allocated would count twice until it has warmed up.
telemetry::Wanted wanted_for(const Request& request);

// Cards that can be leased: a card, or with MIG on its instances. Lost cards are not among them. Reads /proc
// for the processes' ancestors: never under a lock.
Machine from_snapshot(const telemetry::Snapshot& snapshot);

}  // namespace innkeeper::lease
