// What time it is, for a runner that deletes: the earliest that several clocks say.
//
// A machine may start with a wall clock that is months ahead, and be set right later. What such a clock alone
// calls old must stay. So the queue's database keeps what runners read: the time may be no later than the
// wall clock, than an earlier runner's reading of this start of the machine and what the machine's clock
// counted since, and than the last reading of the start before and the time since this one began.
#pragma once

#include "base/status.h"
#include "queue/store.h"

namespace innkeeper::queue {

// Nanoseconds since 1970. `boot_id`: this start of the machine's. Notes the reading in the database.
Result<int64_t> careful_now(Store& store, const std::string& boot_id);

}  // namespace innkeeper::queue
