#include "residency/block/state.h"

namespace innkeeper {

const char* to_string(ReplicaState state) {
  static constexpr std::array<const char*, kReplicaStates> kNames = {"absent", "arriving", "shared", "owned"};
  return kNames[static_cast<size_t>(state)];
}

const char* to_string(ReplicaEvent event) {
  static constexpr std::array<const char*, kReplicaEvents> kNames = {
      "born", "fetch_begin", "fetch_end", "fetch_fail", "share", "write", "drop", "promote", "free"};
  return kNames[static_cast<size_t>(event)];
}

}  // namespace innkeeper
