// Whether a GPU does what it is made for just now, or others have it, or heat holds it back.
#pragma once

#include <string_view>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

struct Condition {
  bool shared = false;  // more than one process has it
  bool slowed = false;  // Clocks::slowed
};

// Of the GPU or the MIG instance with this UUID, by a snapshot with Wanted::clocks and Wanted::processes. A
// process of which the driver does not tell the instance counts for each instance of its card. Neither where
// the snapshot has no such GPU, or the driver does not tell.
Condition condition_of(const Snapshot& cards, std::string_view uuid);

}  // namespace innkeeper::telemetry
