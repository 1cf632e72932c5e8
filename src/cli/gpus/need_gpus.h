// A check of the machine that status and the grant commands make first.
#pragma once

#include "telemetry/snapshot.h"

namespace innkeeper::cli {

// Fails unless there is a GPU; the message names the driver's trouble and its cure.
void need_gpus(const telemetry::Snapshot& snapshot);

}  // namespace innkeeper::cli
