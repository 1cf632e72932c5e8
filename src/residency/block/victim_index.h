// The replicas of one node that may leave, in the order in which they should: binary heaps by the policy's
// keys.
//
// Small replicas stay while they are few: each costs a copy's latency whatever its size, and together they
// are a small part of the budget.
//
// An operator that uses a replica does not touch the index. The key in the index is that of the time when the
// replica was added, and never more than the key of now; an entry that reaches the top with an old key is put
// back with the new one. So a victim costs O(log n), and one step for each use since it was last looked at.
// Where the policy knows when the first victim will be used again, a few others are looked at in turn, and a
// spare that will be used later leaves instead.
//
// Thread safety: none; engine_mutex guards it. A block in the index must stay.
#pragma once

#include <atomic>
#include <vector>

#include "policy/eviction.h"
#include "residency/block/block.h"

namespace innkeeper {

class VictimIndex {
 public:
  // `policy` and `clock` must outlive the index.
  VictimIndex(NodeId node, const EvictionPolicy& policy, const std::atomic<Stamp>& clock)
      : node_(node), policy_(policy), clock_(clock) {}

  size_t size() const { return large_.size() + small_.size(); }
  bool contains(const Block& block) const { return block.replica(node_).place != Replica::kNoPlace; }
  // A replica comes to the node, or leaves it for good.
  void came(Block& block);
  void left(Block& block);
  // Adds a replica that is not in the index.
  void add(Block& block) { push({policy_.key(view_of(block)), &block}); }
  // Adds a replica that cannot leave now, as if it had been used at `now`.
  void add_as_used(Block& block, Stamp now);
  // Removes the replica, if it is there. Requires: its memory is as it was when it was added.
  void remove(Block& block);
  // Removes and returns the block that should leave first; null if there is none. Small ones stay while they
  // take at most 1/kSmallShare of the `budget`, and there are others.
  Block* pop(Bytes budget);

 private:
  struct Entry {
    EvictionKey key;
    Block* block;
  };
  using Heap = std::vector<Entry>;  // Entry i is less than the entries 2 i + 1 and 2 i + 2.

  EvictionView view_of(const Block& block) const;
  bool is_small(const Block& block) const { return block.replica(node_).memory.size() <= kSmallReplica; }
  Heap& heap_of(const Block& block) { return is_small(block) ? small_ : large_; }
  // Place in large_ of the first victim, or of a spare among some others that will be used later.
  size_t used_last();
  // The heap's first entry, after its key has been brought up to date; null if the heap is empty.
  const Entry* first_of(Heap& heap);
  void push(Entry entry);
  void put(Heap& heap, size_t place, Entry entry);
  void rise(Heap& heap, size_t place, Entry entry);
  void sink(Heap& heap, size_t place, Entry entry);
  void take_out(Heap& heap, size_t place);

  const NodeId node_;
  const EvictionPolicy& policy_;
  const std::atomic<Stamp>& clock_;
  size_t hand_ = 0;  // Next place in large_ that is looked at.
  Heap large_;
  Heap small_;
  Bytes small_bytes_{0};
};

}  // namespace innkeeper
