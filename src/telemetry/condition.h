// Tells whether other processes use a GPU now, or heat slows it, so that its measurements
// would not be typical.
#pragma once

#include <string_view>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

struct Condition {
  bool shared = false;  // True: more than one process uses it.
  bool slowed = false;  // True: Clocks::slowed.
};

// Returns the condition of the GPU or MIG instance with this UUID, by a snapshot with Wanted::clocks and
// Wanted::processes. A process of unknown instance counts for each instance of its GPU. Both are false if the
// snapshot has no such GPU, or the driver does not tell.
Condition condition_of(const Snapshot& gpus, std::string_view uuid);

}  // namespace innkeeper::telemetry
