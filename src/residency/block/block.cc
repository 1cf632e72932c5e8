#include "residency/block/block.h"

#include <string>

namespace innkeeper {

void Replica::transition(ReplicaEvent event) {
  const ReplicaState before = word.state();
  const uint8_t after = next_state(before, event);
  IK_CHECK(after != kIllegal,
           std::string("a replica that is ") + to_string(before) + " cannot " + to_string(event));
  word.set_state(static_cast<ReplicaState>(after));
}

}  // namespace innkeeper
