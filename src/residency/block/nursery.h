// Results that were just made and that no thread has looked for. Most die like this, with their only replica
// where it was born; then neither birth nor death takes engine_mutex.
//
// A result in the nursery stands at one of kPlaces places instead of on its node's list and in the index of
// victims. Before a thread looks at lists, at indexes or at the books of replicas, or moves or keeps a block,
// it takes the mutex and drains the nursery, or takes that block out; Engine lists what comes out. A result
// here was never moved, lent, pinned by the user or held, and has not escaped: its bytes are one owned
// replica, which operators may pin.
//
// A block leaves its place once, by one exchange, to the first of two: to the thread that takes it in, or to
// its own end. An end leaves a mark at the place until the bytes have been given back. So who needs room, and
// looks for blocks, for marks and for free room in that order, misses none.
//
// Thread safety: all methods. add() and begin_death() are those of the block's own thread, as Operands::adopt()
// and destroy() are; no method waits. What a thread wrote before add() is seen by the thread that takes the
// block.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "residency/block/block.h"

namespace innkeeper {

class Nursery {
 public:
  static constexpr size_t kPlaces = 128;
  static_assert(kPlaces < Block::kNoPlace);

  // Gives the block a place, where others find it from now on. False: all are taken.
  bool add(Block& block) {
    const size_t first = place_of(block);
    for (size_t tries = 0; tries < kPlaces; ++tries) {
      const size_t place = (first + tries) % kPlaces;
      if (places_[place].load(std::memory_order_relaxed) != kFree) continue;
      block.nursery_place_ = static_cast<uint8_t>(place);  // Set before a thread can find it.
      uintptr_t expected = kFree;
      // In one order with Engine's mark on nodes that are short of room (Node::tight).
      if (places_[place].compare_exchange_strong(expected, word_of(block), std::memory_order_seq_cst))
        return true;
    }
    block.nursery_place_ = Block::kNoPlace;
    return false;
  }

  // Takes the block from its place, if it stands at one.
  bool take(Block& block) { return exchange(block, kFree); }

  // Takes all that stand here. Returns how many, the first of `taken`.
  size_t take_all(std::array<Block*, kPlaces>& taken) {
    size_t count = 0;
    for (std::atomic<uintptr_t>& place : places_) {
      uintptr_t word = place.load(std::memory_order_seq_cst);
      if (word == kFree || is_mark(word)) continue;
      if (place.compare_exchange_strong(word, kFree, std::memory_order_acq_rel))
        taken[count++] = reinterpret_cast<Block*>(word);
    }
    return count;
  }

  // The block ends, and is about to give back the bytes that it has at `node`: no thread finds it any more,
  // and its place is marked until end_death(). False: it stands at no place, or others were faster.
  bool begin_death(Block& block, NodeId node) { return exchange(block, mark_of(node)); }
  void end_death(Block& block) { places_[block.nursery_place_].store(kFree, std::memory_order_release); }
  // Is some block giving back bytes at the node? Who is told no finds the room of those that were.
  bool any_dying(NodeId node) const {
    for (const std::atomic<uintptr_t>& place : places_) {
      if (place.load(std::memory_order_acquire) == mark_of(node)) return true;
    }
    return false;
  }

 private:
  // A place is free, a block's, or marked: a block's address is even.
  static constexpr uintptr_t kFree = 0;
  static uintptr_t word_of(const Block& block) { return reinterpret_cast<uintptr_t>(&block); }
  static uintptr_t mark_of(NodeId node) { return index_of(node) * 2 + 1; }
  static bool is_mark(uintptr_t word) { return (word & 1) != 0; }

  // Where a block looks first. A thread is given the memory again that it let go of last, and so finds the
  // place that it left; blocks one after the other have places of their own.
  static size_t place_of(const Block& block) { return word_of(block) / 32 % kPlaces; }

  bool exchange(Block& block, uintptr_t with) {
    if (block.nursery_place_ == Block::kNoPlace) return false;
    std::atomic<uintptr_t>& place = places_[block.nursery_place_];
    uintptr_t expected = word_of(block);
    return place.load(std::memory_order_relaxed) == expected &&
           place.compare_exchange_strong(expected, with, std::memory_order_acq_rel);
  }

  std::array<std::atomic<uintptr_t>, kPlaces> places_{};
};

}  // namespace innkeeper
