// Extends a record by further steps that repeat the last one, with blocks of their own.
#pragma once

#include "base/status.h"
#include "trace/record.h"

namespace innkeeper::replay {

// Returns the record and `more` steps after it. Fails unless the last two steps did the same, each with its
// own blocks in the places of the other's. Otherwise the next steps are unknown.
Result<trace::AccessRecord> with_more_steps(const trace::AccessRecord& record, int64_t more);

}  // namespace innkeeper::replay
