#include "plan/free_space_estimate.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace innkeeper::plan {
namespace {

// Bytes that the moves copy to the next tier. A block that leaves a backing node because a node above has it
// is not copied.
int64_t bytes_leaving(std::span<const PlannedMove> moves) {
  int64_t bytes = 0;
  for (const PlannedMove& move : moves)
    if (!move.arrives && (move.written || !move.stored)) bytes += move.size.count();
  return bytes;
}

}  // namespace

Bytes FreeSpaceEstimate::usable(NodeId node, Bytes free) {
  const size_t index = index_of(node);
  free_[index] = free.count();
  return free - Bytes(shortage_[index]);
}

void FreeSpaceEstimate::set_backing(NodeId node, Bytes free) {
  backing_ = node;
  free_[index_of(node)] = free.count();
}

bool FreeSpaceEstimate::learn_shortage(std::span<const PlannedMove> moves) {
  if (schedules_ >= kMostSchedules || moves.empty()) return false;
  int64_t evicted = 0;
  for (const int64_t bytes : evicted_) evicted += bytes;
  if (evicted == 0) {
    least_left_ = INT64_MAX;
    return false;
  }
  const int64_t left = bytes_leaving(moves) + evicted;
  if (left >= least_left_) {
    schedules_ = kMostSchedules;
    return std::exchange(shortage_, best_shortage_) != best_shortage_;
  }
  least_left_ = left;
  best_shortage_ = shortage_;
  for (size_t i = 0; i < kMaxNodes; ++i) shortage_[i] += std::min(evicted_[i], free_[i] / kShortageTolerance);
  ++schedules_;
  return true;
}

bool FreeSpaceEstimate::has_changed(const Program& program, const EngineView& engine, int64_t periods) {
  if (periods < settles_at_) return false;
  const auto changed = [&](NodeId node) {
    const int64_t before = free_[index_of(node)];
    return std::abs(engine.free_space(node).count() - before) > before / kReplanThreshold;
  };
  const std::vector<NodeId> nodes = program.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), changed) && (backing_ == kNoNode || !changed(backing_))) {
    if (periods >= settles_at_ + kQuietPeriods) changes_ = 0;
    return false;
  }
  settles_at_ = periods + (int64_t{1} << std::min(changes_++, kMostChanges));
  forget_shortage();
  return true;
}

void FreeSpaceEstimate::reset() {
  forget_shortage();
  settles_at_ = 0;
  free_.fill(0);
  evicted_.fill(0);
}

void FreeSpaceEstimate::forget_shortage() {
  shortage_.fill(0);
  best_shortage_.fill(0);
  least_left_ = INT64_MAX;
  schedules_ = 0;
}

}  // namespace innkeeper::plan
