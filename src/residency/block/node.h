// What the engine knows of a node: its device, how much of it is used, and what is there or on its way.
//
// Thread safety: as each field says. Engine guards it.
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
#include "residency/block/victim_index.h"
#include "residency/block/links.h"
#include "residency/block/reservation.h"
#include "residency/block/stamps.h"

namespace innkeeper {

// Host memory that left a replica, and the copies that may still touch it (I5).
struct ParkedMemory {
  Memory memory;
  std::vector<Event> users;
};

struct Node {
  NodeId id{};
  std::unique_ptr<Device> device;
  NodeKind kind = NodeKind::host;
  bool computes = false;
  // Bytes per second, of plan::Speed: a probe may find others than the setup said.
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
  Promises promises;  // Promised part of `used`.
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> ops{0};
  std::atomic<int64_t> evictions{0};
  std::atomic<int> running{0};  // operators between NodeAdmission's ends
  // Has been more than half full, or asked to take a large operator: they take turns from now on, and no
  // new result stays off the list.
  std::atomic<bool> tight{false};
  // Replicas that are leaving or arriving here right now. Counted up with the lock; down after the bytes
  // have been given back, so a thread that reads zero has to ask for the room once more.
  std::atomic<int> moving{0};
  std::atomic<int64_t> ahead{0};      // bytes that are to be written back before they must leave
  std::atomic<int64_t> unplanned{0};  // bytes that left for threads that no planner follows
  // Guarded by BlockTable::mutex_:
  Block* first = nullptr;  // resident replicas
  Bytes replica_bytes{0};
  Bytes pinned_by_user{0};
  Bytes vacating{0};       // Part of the replicas that leaves once moves have landed.
  bool exclusive = false;  // One operator is admitted, and no other (NodeAdmission).
  int stuck = 0;           // Part of `running` that waits for space or operands.
  std::deque<ParkedMemory> parked;
  Link in;                         // copies into the node; of the host: none, the other end counts
  Link out;                        // copies out of it
  std::unique_ptr<Stamps> stamps;  // Stamps of an accelerator's compute queue.
  // Replicas that hold memory, but those that are leaving. Guarded by BlockTable::mutex_.
  std::unique_ptr<VictimIndex> index;
};

}  // namespace innkeeper
