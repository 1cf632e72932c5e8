// A block: the storage of one or more managed tensors, and its replicas, at most one a node.
//
// Engine alone creates and destroys blocks; others hold plain pointers that are valid while the tensor's
// storage lives. Other layers reach fields through Engine, but for the fast path below.
//
// A replica's `word` is its state, a flag and its pins in one atomic, so that an operator whose operands are
// resident pins each with one compare-and-swap and no lock. All other fields are guarded by engine_mutex,
// or by the block's `moving` flag while a thread works on the block without it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/trailing_array.h"
#include "base/types.h"
#include "device/device_api.h"
#include "policy/reuse_history.h"
#include "residency/block/copies.h"
#include "residency/block/stamps.h"
#include "residency/block/state.h"
#include "residency/block/thread_state.h"

namespace innkeeper {

class Block;

// The atomic part of a replica: bits 0-1 the state, bit 2 `closed` (no new fast pins), bits 3-31 how many
// operators that write pin it, the rest how many pin it.
class ReplicaWord {
 public:
  static constexpr uint64_t kStateMask = 3;
  static constexpr uint64_t kClosed = 4;
  static constexpr uint64_t kWriter = 8;
  static constexpr uint64_t kPin = uint64_t{1} << 32;

  static ReplicaState state_of(uint64_t word) { return static_cast<ReplicaState>(word & kStateMask); }
  static uint32_t pins_of(uint64_t word) { return static_cast<uint32_t>(word / kPin); }
  static uint32_t writers_of(uint64_t word) { return static_cast<uint32_t>(word % kPin / kWriter); }

  uint64_t load() const { return word_.load(std::memory_order_acquire); }
  ReplicaState state() const { return state_of(load()); }
  uint32_t pins() const { return pins_of(load()); }
  uint32_t writers() const { return writers_of(load()); }

  // Adds a pin if the replica is open and valid (for a write: owned). This is an operator's fast path.
  bool try_pin(bool write) {
    uint64_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
      const ReplicaState state = state_of(word);
      const bool fits = state == ReplicaState::owned || (state == ReplicaState::shared && !write);
      if (!fits || (word & kClosed) != 0) return false;
      if (word_.compare_exchange_weak(word, word + pin_of(write), std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
        return true;
      }
    }
  }
  // Makes an absent replica, which no other thread can reach, the owner, and pins it.
  void be_born() {
    word_.store(static_cast<uint64_t>(ReplicaState::owned) + kPin, std::memory_order_release);
  }
  // Makes a replica that no other thread can reach any more absent, with any pins that it has.
  void be_gone() { word_.store(0, std::memory_order_relaxed); }
  void add_pin(bool write) { word_.fetch_add(pin_of(write), std::memory_order_acquire); }
  void remove_pin(bool write) { word_.fetch_sub(pin_of(write), std::memory_order_release); }
  // The operator that wrote is through; its pin stays.
  void end_write() { word_.fetch_sub(kWriter, std::memory_order_release); }

  // Makes a valid replica shared, so that it may be copied from, unless an operator writes it. A caller that
  // wants to write from now on must claim it, and finds the copy.
  bool try_share() {
    uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (writers_of(word) != 0) return false;
    } while (!word_.compare_exchange_weak(word, with_state(word, ReplicaState::shared),
                                          std::memory_order_acq_rel));
    return true;
  }

  // Closes the replica against fast pins, unless it is pinned. Closing twice is closing once.
  bool close_if_unpinned() {
    uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (pins_of(word) != 0) return false;
    } while (!word_.compare_exchange_weak(word, word | kClosed, std::memory_order_acq_rel));
    return true;
  }
  // For a replica that no thread can pin yet.
  void close() { word_.fetch_or(kClosed, std::memory_order_acq_rel); }
  bool is_closed() const { return (load() & kClosed) != 0; }
  void open() { word_.fetch_and(~kClosed, std::memory_order_release); }
  // Changes the state and keeps pins and flag.
  void set_state(ReplicaState state) {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(word, with_state(word, state), std::memory_order_acq_rel)) {
    }
  }

 private:
  static constexpr uint64_t pin_of(bool write) { return write ? kPin + kWriter : kPin; }
  static uint64_t with_state(uint64_t word, ReplicaState state) {
    return (word & ~kStateMask) | static_cast<uint64_t>(state);
  }

  std::atomic<uint64_t> word_{0};
};

struct Replica {
  // Changes the state by the table in state.h; any other change ends the process.
  void transition(ReplicaEvent event);
  // Makes a valid replica shared, so that it may be copied. False if an operator writes it.
  bool share() {
    IK_CHECK(is_valid(word.state()), "only valid bytes are shared");
    return word.try_share();
  }
  // Opens a valid replica, unless a copy into it is under way, or it is the owner and a copy out of it is:
  // the next pin must order itself after these (Mover::open_replica).
  void reopen() {
    if (copies.into() == nullptr && (copies.none() || word.state() != ReplicaState::owned)) word.open();
  }

  ReplicaWord word;
  std::atomic<Stamp> last_use{0};
  std::atomic<Stamp> last_write{0};
  // Changed with engine_mutex held; read without it where a stale answer does no harm (Operands::place).
  std::atomic<uint32_t> user_pins{0};
  std::atomic<uint32_t> escapes{0};  // Pins kept because the real storage is held outside (I12).
  Memory memory;
  Copies copies;
  // The node's list of resident replicas.
  Block* previous = nullptr;
  Block* next = nullptr;
  [[no_unique_address]] ReuseHistory reuse_history;
  bool listed = false;
  bool vacating = false;  // Leaves once a move out of it has landed; not in the index of victims.
  static constexpr uint32_t kNoPlace = UINT32_MAX;
  uint32_t place = kNoPlace;  // Place in the node's index of victims.
};

class Block : public TrailingArray<Block, Replica> {
 public:
  BlockId id() const { return id_; }
  Bytes size() const { return Bytes(size_.load(std::memory_order_relaxed)); }
  Replica& replica(NodeId node) { return items()[index_of(node)]; }
  const Replica& replica(NodeId node) const { return items()[index_of(node)]; }
  // The replica's bytes, while it is pinned.
  void* data(NodeId node) const { return items()[index_of(node)].memory.data(); }

  // For the layer that created the block: the torch layer keeps the real storages here. The engine never
  // reads it.
  void* attachment = nullptr;

  // Read at several nodes at the same time, as the weights of data-parallel replicas are: operators run where
  // their other operands are (Operands::place).
  std::atomic<bool> replicated{false};
  // The bytes are nowhere, and can be recomputed (Recomputer). Changed with engine_mutex held.
  std::atomic<bool> discarded{false};
  // Writes so far, by operators and users; the program orders them.
  uint32_t writes() const { return writes_.load(std::memory_order_relaxed); }
  // Whether a discarded block is to be recomputed from this one's bytes. Guarded by engine_mutex.
  bool feeds_discarded() const { return feeds_discarded_; }
  void count_write() { writes_.store(writes() + 1, std::memory_order_relaxed); }
  void set_size(Bytes size) { size_.store(size.count(), std::memory_order_relaxed); }
  // Whether a thread works on the block's replicas without the lock, and whether it is this thread.
  bool is_moving() const { return moving_thread_ != nullptr; }
  bool is_moved_by_me() const { return moving_thread_ == &thread_state(); }
  bool is_moved_by_waiting_thread() const { return moving_thread_ != nullptr && moving_thread_->waits; }
  int64_t packed_name() const { return name_.load(std::memory_order_relaxed); }
  bool has_name() const { return packed_name() != 0; }  // Some program's planner knows the block.

 private:
  friend class BlockTable;
  friend class Nursery;
  friend class PlanExecutor;
  friend class Recomputer;
  friend class TrailingArray<Block, Replica>;
  Block(BlockId id, Bytes size) : id_(id), size_(size.count()) {}

  static constexpr uint8_t kNoPlace = UINT8_MAX;
  uint8_t nursery_place_ = kNoPlace;  // Place in the nursery, if it has one (nursery.h).
  bool feeds_discarded_ = false;
  std::atomic<uint32_t> writes_{0};
  const BlockId id_;
  std::atomic<int64_t> size_;
  std::atomic<int64_t> name_{0};  // The packed BlockName (program_trackers.h).
  // The thread that is changing the block's replicas without the lock, or null; no other thread may. Guarded
  // by engine_mutex.
  const ThreadState* moving_thread_ = nullptr;
  size_t moving_place_ = 0;  // Place in BlockTable::moving_ during a move.
};

// On a machine of two nodes a block costs less than 300 bytes, malloc's own included.
static_assert(sizeof(Block) + 2 * sizeof(Replica) <= 272);

}  // namespace innkeeper
