#include "residency/block/victim_index.h"

#include <algorithm>

#include "base/check.h"

namespace innkeeper {

EvictionView VictimIndex::view_of(const Block& block) const {
  const Replica& replica = block.replica(node_);
  return {.size = replica.memory.size(),
          .last_use = replica.last_use.load(std::memory_order_relaxed),
          .spare = replica.word.state() != ReplicaState::owned,
          .reuse_history = replica.reuse_history};
}

void VictimIndex::came(Block& block) {
  Replica& replica = block.replica(node_);
  replica.reuse_history.came(replica.last_use.load(std::memory_order_relaxed),
                             clock_.load(std::memory_order_relaxed));
  add(block);
}

void VictimIndex::left(Block& block) {
  Replica& replica = block.replica(node_);
  replica.reuse_history.left(replica.last_use.load(std::memory_order_relaxed));
  remove(block);
}

void VictimIndex::add_as_used(Block& block, Stamp now) {
  EvictionKey key = policy_.key(view_of(block));
  key.rank = std::max(key.rank, policy_.key({.last_use = now}).rank);
  push({key, &block});
}

void VictimIndex::remove(Block& block) {
  if (contains(block)) take_out(heap_of(block), block.replica(node_).place);
}

const VictimIndex::Entry* VictimIndex::first_of(Heap& heap) {
  while (!heap.empty()) {
    const EvictionKey now = policy_.key(view_of(*heap.front().block));
    if (now.rank <= heap.front().key.rank) return &heap.front();
    sink(heap, 0, {now, heap.front().block});
  }
  return nullptr;
}

Block* VictimIndex::pop(Bytes budget) {
  const bool few_small = small_bytes_.count() <= budget.count() / kSmallShare;
  const Entry* const large = first_of(large_);
  const Entry* const small = large != nullptr && few_small ? nullptr : first_of(small_);
  if (large == nullptr && small == nullptr) return nullptr;
  const bool takes_large = small == nullptr || (large != nullptr && large->key.rank <= small->key.rank);
  Heap& heap = takes_large ? large_ : small_;
  const size_t place = takes_large ? used_last() : 0;
  Block* const block = heap[place].block;
  take_out(heap, place);
  return block;
}

size_t VictimIndex::used_last() {
  const Stamp now = clock_.load(std::memory_order_relaxed);
  size_t place = 0;
  uint64_t last = policy_.next_use(view_of(*large_.front().block), now);
  if (last == 0) return place;
  for (size_t looks = std::min(kVictimLooks, large_.size()); looks > 0; --looks) {
    hand_ = hand_ + 1 < large_.size() ? hand_ + 1 : 0;
    const Block& block = *large_[hand_].block;
    const uint64_t word = block.replica(node_).word.load();
    if (ReplicaWord::state_of(word) != ReplicaState::shared || ReplicaWord::pins_of(word) != 0) continue;
    const uint64_t next = policy_.next_use(view_of(block), now);
    if (next <= last) continue;
    last = next;
    place = hand_;
  }
  return place;
}

void VictimIndex::push(Entry entry) {
  IK_CHECK(!contains(*entry.block), "a replica is in the index once");
  Heap& heap = heap_of(*entry.block);
  IK_CHECK(heap.size() < Replica::kNoPlace, "more replicas than an index has places");
  if (&heap == &small_) small_bytes_ += entry.block->replica(node_).memory.size();
  heap.push_back(entry);
  rise(heap, heap.size() - 1, entry);
}

void VictimIndex::put(Heap& heap, size_t place, Entry entry) {
  heap[place] = entry;
  entry.block->replica(node_).place = static_cast<uint32_t>(place);
}

void VictimIndex::rise(Heap& heap, size_t place, Entry entry) {
  while (place > 0) {
    const size_t parent = (place - 1) / 2;
    if (heap[parent].key <= entry.key) break;
    put(heap, place, heap[parent]);
    place = parent;
  }
  put(heap, place, entry);
}

void VictimIndex::sink(Heap& heap, size_t place, Entry entry) {
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= heap.size()) break;
    if (child + 1 < heap.size() && heap[child + 1].key < heap[child].key) ++child;
    if (entry.key <= heap[child].key) break;
    put(heap, place, heap[child]);
    place = child;
  }
  put(heap, place, entry);
}

void VictimIndex::take_out(Heap& heap, size_t place) {
  Replica& gone = heap[place].block->replica(node_);
  gone.place = Replica::kNoPlace;
  if (&heap == &small_) small_bytes_ -= gone.memory.size();
  const Entry last = heap.back();
  heap.pop_back();
  if (place == heap.size()) return;  // The last entry is gone.
  if (place > 0 && last.key < heap[(place - 1) / 2].key) {
    rise(heap, place, last);
  } else {
    sink(heap, place, last);
  }
}

}  // namespace innkeeper
