// A block: the storage of one or more managed tensors, and its replicas, at most one a node.
//
// A block is created and destroyed by the Engine alone; everybody else holds plain pointers that are good
// while the tensor's storage lives. Fields are reached through Engine, but for the fast path below.
//
// A replica's `word` is its state, a flag and its pins in one atomic, so that an operator whose operands are
// resident pins each with one compare-and-swap and no lock. All other fields are guarded by Engine's mutex,
// or by the block's `moving` flag while a thread works on the block without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/types.h"
#include "device/device_api.h"
#include "residency/state.h"

namespace innkeeper {

class Block;

// The atomic part of a replica: bits 0-1 the state, bit 2 `closed` (no new fast pins), the rest a count of
// pins.
class ReplicaWord {
 public:
  static constexpr uint32_t kStateMask = 3;
  static constexpr uint32_t kClosed = 4;
  static constexpr uint32_t kPin = 8;

  static ReplicaState state_of(uint32_t word) { return static_cast<ReplicaState>(word & kStateMask); }
  static uint32_t pins_of(uint32_t word) { return word / kPin; }

  uint32_t load() const { return word_.load(std::memory_order_acquire); }
  ReplicaState state() const { return state_of(load()); }
  uint32_t pins() const { return pins_of(load()); }

  // Adds a pin if the replica is open and valid (for a write: owned). This is an operator's fast path.
  bool try_pin(bool write) {
    uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
      const ReplicaState state = state_of(word);
      const bool fits = state == ReplicaState::owned || (state == ReplicaState::shared && !write);
      if (!fits || (word & kClosed) != 0) return false;
      if (word_.compare_exchange_weak(word, word + kPin, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
        return true;
      }
    }
  }
  void add_pin() { word_.fetch_add(kPin, std::memory_order_acquire); }
  // Returns how many pins are left.
  uint32_t remove_pin() { return pins_of(word_.fetch_sub(kPin, std::memory_order_release)) - 1; }

  // Closes the replica against fast pins, unless somebody pins it. Closing twice is closing once.
  bool close_if_unpinned() {
    uint32_t word = word_.load(std::memory_order_relaxed);
    do {
      if (pins_of(word) != 0) return false;
    } while (!word_.compare_exchange_weak(word, word | kClosed, std::memory_order_acq_rel));
    return true;
  }
  // For a replica that nobody can pin yet.
  void close() { word_.fetch_or(kClosed, std::memory_order_acq_rel); }
  bool is_closed() const { return (load() & kClosed) != 0; }
  void open() { word_.fetch_and(~kClosed, std::memory_order_release); }
  // Changes the state and keeps pins and flag.
  void set_state(ReplicaState state) {
    uint32_t word = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(word, (word & ~kStateMask) | static_cast<uint32_t>(state),
                                        std::memory_order_acq_rel)) {
    }
  }

 private:
  std::atomic<uint32_t> word_{0};
};

struct Replica {
  ReplicaWord word;
  std::atomic<uint64_t> last_use{0};
  // Changed with Engine's mutex held; read without it where a stale answer does no harm (Engine::place).
  std::atomic<uint32_t> user_pins{0};
  std::atomic<uint32_t> escapes{0};  // pins kept because somebody else holds the real storage (I12)
  Memory memory;
  Event ready;                 // the copy that fills it, until the compute queue is ordered after it
  std::vector<Event> readers;  // copies that read it and may not be done
  // The node's list of resident replicas.
  Block* previous = nullptr;
  Block* next = nullptr;
  bool listed = false;
};

class Block {
 public:
  BlockId id() const { return id_; }
  Bytes size() const { return Bytes(size_.load(std::memory_order_relaxed)); }
  Replica& replica(NodeId node) { return replicas_[index_of(node)]; }
  const Replica& replica(NodeId node) const { return replicas_[index_of(node)]; }
  // The replica's bytes, while it is pinned.
  void* data(NodeId node) const { return replicas_[index_of(node)].memory.data(); }

  // For whoever made the block (the torch layer keeps the real storages here). The engine never looks at it.
  void* attachment = nullptr;

 private:
  friend class Engine;
  Block(BlockId id, Bytes size, size_t nodes)
      : id_(id), size_(size.count()), replicas_(std::make_unique<Replica[]>(nodes)) {}

  const BlockId id_;
  std::atomic<int64_t> size_;
  // The thread that is changing the block's replicas without the lock (its ThreadState), or null; nobody else
  // may. Guarded by Engine's mutex.
  const void* mover_ = nullptr;
  std::unique_ptr<Replica[]> replicas_;
};

}  // namespace innkeeper
