// The states of a replica, and the step that each event takes from each state: data, in one table.
//
// Events are named from the replica's own point of view. kIllegal marks steps that the engine must never
// take: Replica::transition() checks every step against this table, and tests/unit/residency/state_test.cc
// checks the table row by row against I1, I2, I3 and I5.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace innkeeper {

enum class ReplicaState : uint8_t {
  absent = 0,    // The node has no bytes of the block.
  arriving = 1,  // A move brings the bytes; its memory may not be allocated yet. No operator reads it (I5).
  shared = 2,    // Valid; other replicas may be valid too.
  owned = 3,     // Valid, and the only valid replica (I2).
};
inline constexpr size_t kReplicaStates = 4;

enum class ReplicaEvent : uint8_t {
  born,         // First use, or a kernel's fresh result: memory without any copy.
  fetch_begin,  // A move from another replica into this one starts.
  fetch_end,    // The copy is ordered before the next reader.
  fetch_fail,   // The copy failed; the memory is freed.
  share,        // Another replica is being filled from this one.
  write,        // An operator here is about to write; all other replicas are dropped first.
  drop,         // Spare bytes are freed: another valid replica stays (I1); an owner is shared before.
  promote,      // Every other valid replica is gone: this one is the only copy.
  free,         // The bytes end with the block, or the block is discarded.
};
inline constexpr size_t kReplicaEvents = 9;

inline constexpr uint8_t kIllegal = 255;

// kTransitions[state][event] is the next state.
// clang-format off
inline constexpr std::array<std::array<uint8_t, kReplicaEvents>, kReplicaStates> kTransitions = {{
    //               born      fetch_begin fetch_end fetch_fail share     write     drop      promote   free
    /* absent   */ {{3,        1,          kIllegal, kIllegal,  kIllegal, kIllegal, kIllegal, kIllegal, 0}},
    /* arriving */ {{kIllegal, kIllegal,   2,        0,         kIllegal, kIllegal, kIllegal, kIllegal, 0}},
    /* shared   */ {{kIllegal, kIllegal,   kIllegal, kIllegal,  2,        3,        0,        3,        0}},
    /* owned    */ {{kIllegal, kIllegal,   kIllegal, kIllegal,  2,        3,        kIllegal, 3,        0}},
}};
// clang-format on

constexpr uint8_t next_state(ReplicaState state, ReplicaEvent event) {
  return kTransitions[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

constexpr bool is_valid(ReplicaState state) {
  return state == ReplicaState::shared || state == ReplicaState::owned;
}

const char* to_string(ReplicaState state);
const char* to_string(ReplicaEvent event);

}  // namespace innkeeper
