#include "residency/block/sources.h"

#include <algorithm>
#include <string>

namespace innkeeper {

NodeId source_of(const BlockTable& table, const Block& block, NodeId to) {
  NodeId best = kNoNode;
  int best_rank = 0;
  for (const auto& at : table.nodes()) {
    if (at->id == to || !table.has_replica(block, at->id)) continue;
    int rank = 1;
    if (at->kind == NodeKind::host) rank = 2;
    if (at->kind == NodeKind::accelerator && to != table.host() &&
        table.device(to).can_copy_from(*at->device))
      rank = 3;
    if (rank > best_rank) {
      best_rank = rank;
      best = at->id;
    }
  }
  return best;
}

Status lost_with(const BlockTable& table, const Block& block) {
  for (const auto& at : table.nodes()) {
    if (!is_valid(block.replica(at->id).word.state()) || !at->device->is_lost()) continue;
    return Status(Code::device_lost, "block " + std::to_string(static_cast<uint64_t>(block.id())) + " (" +
                                         to_string(block.size()) + ") was only on " + at->device->name() +
                                         " and is lost with it: " + at->device->loss().message());
  }
  return {};
}

Status check_not_lost(const BlockTable& table, const Block& block) {
  const bool readable = std::any_of(table.nodes().begin(), table.nodes().end(),
                                    [&](const auto& at) { return table.has_replica(block, at->id); });
  return readable ? Status() : lost_with(table, block);
}

}  // namespace innkeeper
