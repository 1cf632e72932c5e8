// More steps than were recorded: those to come are as the last one was, with blocks of their own.
#pragma once

#include "base/status.h"
#include "trace/record.h"

namespace innkeeper::replay {

// The record and `more` steps after it. The last two steps must have done the same, each with its own blocks
// in the places of the other's: else there is no telling what the next would do.
Result<trace::AccessRecord> with_more_steps(const trace::AccessRecord& record, int64_t more);

}  // namespace innkeeper::replay
