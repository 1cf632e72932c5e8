// Current time for a runner that deletes history: the earliest time that several clocks give.
//
// A machine may start with a wall clock that is months ahead and is corrected later. Jobs that only such a
// clock calls old must stay. Therefore the queue's database stores the runners' readings, and three bounds
// hold for the time. It is no later than the wall clock. It is no later than an earlier reading of this boot
// plus the time that the machine's clock has counted since. It is no later than the last reading of the
// previous boot plus the age of this boot.
#pragma once

#include "base/status.h"
#include "queue/store.h"

namespace innkeeper::queue {

// Nanoseconds since 1970. `boot_id` identifies this boot of the machine. Writes the reading to the database.
Result<int64_t> careful_now(Store& store, const std::string& boot_id);

}  // namespace innkeeper::queue
