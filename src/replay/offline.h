// Bytes that a record moves on a GPU of a given memory by a rule that knows the whole record, or none
// of its future. Plans and pagers are measured against it. It counts only bytes: each copy is made at
// the last moment.
#pragma once

#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "trace/record.h"

namespace innkeeper::replay {

enum class Leaves : uint8_t {
  farthest_next_use,    // Belady's MIN.
  least_recently_used,  // The rule of a pager without foresight.
};

struct Traffic {
  Bytes in{0};
  Bytes out{0};  // Blocks written since they arrived.
  int64_t copies = 0;
};

// Returns the traffic of each step. Fails if one operator alone needs more than `space`.
Result<std::vector<Traffic>> traffic(const trace::AccessRecord& record, Bytes space, Leaves rule);

// Returns the peak of the bytes that are alive.
Bytes most_alive(const trace::AccessRecord& record);

}  // namespace innkeeper::replay
