// What status and grants ask of a machine first.
#pragma once

#include "telemetry/snapshot.h"

namespace innkeeper::cli {

// Fails unless there is a card, with the driver's trouble and its cure.
void need_cards(const telemetry::Snapshot& snapshot);

}  // namespace innkeeper::cli
