// One node: its device, the books of its budget, and lists of its replicas.
//
// Thread safety: as each field says.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/types.h"
#include "device/device_api.h"
#include "plan/speed.h"
#include "residency/block/block.h"
#include "residency/block/compute_time.h"
#include "residency/block/links.h"
#include "residency/block/reservation.h"
#include "residency/block/stamps.h"
#include "residency/block/victim_index.h"

namespace innkeeper {

// Host memory that left a replica, with the copies that may still touch it (I5).
struct ParkedMemory {
  Memory memory;
  std::vector<Event> users;
};

struct Node {
  NodeId id{};
  std::unique_ptr<Device> device;
  NodeKind kind = NodeKind::host;
  bool computes = false;
  // Bytes per second (plan::Speed). A probe may replace the setup's figures.
  std::atomic<double> memory_speed{0}, link_speed{0};
  std::function<ComputeTime()> time;
  plan::Speed speed() const {
    return {memory_speed.load(std::memory_order_relaxed), link_speed.load(std::memory_order_relaxed)};
  }
  void set_speed(const plan::Speed& speed) {
    memory_speed.store(speed.memory, std::memory_order_relaxed);
    link_speed.store(speed.link, std::memory_order_relaxed);
  }
  std::atomic<int64_t> budget{0};
  std::atomic<int64_t> used{0};
  Promises promises;  // Part of `used` that is reserved and not allocated.
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> ops{0};
  std::atomic<int64_t> evictions{0};
  std::atomic<int> running{0};  // Operators that are admitted.
  // The node has been more than half full, was to run a large operator, or had no memory for a charge that
  // may evict. From then on operators are admitted one at a time, and fresh results do not stay in the
  // nursery. Never reset.
  std::atomic<bool> tight{false};
  // Replicas that are leaving or arriving now. Raised with the lock; lowered after the bytes have been freed,
  // so a thread that reads 0 tries its charge once more before it fails.
  std::atomic<int> moving{0};
  std::atomic<int64_t> ahead{0};      // Bytes to write to the disk ahead of their eviction.
  std::atomic<int64_t> unplanned{0};  // Bytes evicted for threads without a planner, since a planner heard.
  // Stamps of an accelerator's compute queue; null at other nodes. The pointer is set once, and the object is
  // thread-safe: engine_mutex is not needed.
  std::unique_ptr<Stamps> stamps;
  // From here on guarded by engine_mutex.
  Block* first = nullptr;       // First block of the list of resident replicas.
  bool budget_changes = false;  // A thread is in Evictor::set_budget(), and evicts.
  Bytes replica_bytes{0};
  Bytes pinned_by_user{0};
  Bytes vacating{0};       // Part of replica_bytes that leaves once moves have landed.
  bool exclusive = false;  // One operator is admitted, and no other (NodeAdmission).
  int stuck = 0;           // Part of `running` that waits for memory or operands.
  std::deque<ParkedMemory> parked;
  Link in;   // Copies into the node. Unused at the host: the other end's link counts.
  Link out;  // Copies out of the node.
  // Victims: replicas that hold memory, but those that are leaving.
  std::unique_ptr<VictimIndex> index;
};

}  // namespace innkeeper
