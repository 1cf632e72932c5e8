// What a record would move at a card of a given room by a rule that knows the whole of it, or nothing of what
// comes: what plans and pagers are measured against. Bytes alone: each copy is made when it must be.
#pragma once

#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "trace/record.h"

namespace innkeeper::replay {

enum class Leaves : uint8_t {
  farthest_next_use,    // Belady's MIN
  least_recently_used,  // what a pager without foresight does
};

struct Traffic {
  Bytes in{0};
  Bytes out{0};  // what had been written since it came
  int64_t copies = 0;
};

// For each step. Fails if an operator alone needs more than the room.
Result<std::vector<Traffic>> traffic(const trace::AccessRecord& record, Bytes room, Leaves rule);

// The most bytes that are alive at once.
Bytes most_alive(const trace::AccessRecord& record);

}  // namespace innkeeper::replay
