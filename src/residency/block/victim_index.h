// The replicas of one node that may leave, in the order in which they should: heaps by the policy's keys.
//
// Small ones stay while they are few: each costs a copy's latency whatever its bytes, and all of them
// together are a small part of the room.
//
// An operator that uses a replica does not touch the index. A key is what it was when the replica was put in,
// and never more than it is now; an entry that comes to the top with an old key is put back with the new one.
// So a victim costs O(log n), and one step for each use since it was last looked at. Where the policy knows
// when the first will be used again, a few others are looked at, in turn, and a spare that will be used later
// leaves instead.
//
// Thread safety: none; the engine's mutex guards it. A block in the index must stay.
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
  // Of a replica that has come to the node, or leaves it for good.
  void came(Block& block);
  void left(Block& block);
  // Adds a replica that is not there.
  void add(Block& block) { push({policy_.key(view_of(block)), &block}); }
  // Adds one that was looked at and cannot leave now: as if it were used at `now`.
  void add_as_used(Block& block, Stamp now);
  // Takes it out, if it is there. Its memory is as it was when it was added.
  void remove(Block& block);
  // Takes out the one that should leave first; null if there is none. Small ones stay while they take no more
  // than one part in kSmallShare of the `room`, and there are others.
  Block* pop(Bytes room);

 private:
  struct Entry {
    EvictionKey key;
    Block* block;
  };
  using Heap = std::vector<Entry>;  // each is less than the two at 2 i + 1 and 2 i + 2

  EvictionView view_of(const Block& block) const;
  bool is_small(const Block& block) const { return block.replica(node_).memory.size() <= kSmallReplica; }
  Heap& heap_of(const Block& block) { return is_small(block) ? small_ : large_; }
  // Of the large ones, the place of the first, or of the spare among some others that will be used later.
  size_t used_last();
  // Null, or a heap whose first entry has the key that it should have, the least there.
  const Entry* first_of(Heap& heap);
  void push(Entry entry);
  void put(Heap& heap, size_t place, Entry entry);
  void rise(Heap& heap, size_t place, Entry entry);
  void sink(Heap& heap, size_t place, Entry entry);
  void take_out(Heap& heap, size_t place);

  const NodeId node_;
  const EvictionPolicy& policy_;
  const std::atomic<Stamp>& clock_;
  size_t hand_ = 0;  // Next place to look at in large_.
  Heap large_;
  Heap small_;
  Bytes small_bytes_{0};
};

}  // namespace innkeeper
