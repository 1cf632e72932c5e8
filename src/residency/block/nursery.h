// Fresh results that are on no list yet. Most end like this, with their only replica where it was born; then
// neither birth nor end takes engine_mutex.
//
// A result in the nursery stands at one of kPlaces places instead of on its node's list and in the index of
// victims. Before a thread searches lists, the index or the books of replicas, or moves or keeps a block, it
// takes the mutex and drains the nursery, or takes that block out; BlockTable lists the blocks that come out.
// A result in the nursery was never moved, exposed, pinned by the user or held, and has not escaped: its
// bytes are one owned replica, which operators may pin.
//
// A block leaves its place once, by one exchange: to a thread that drains, or to its own end. An end leaves a
// mark at the place until the bytes have been freed. So a thread that searches for memory, and looks for
// blocks, for marks and for free memory in that order, misses none.
//
// Thread safety: every function. add() and begin_death() are called by the block's own thread, as
// Operands::adopt() and destroy() are; none waits. The thread that takes a block sees all writes of the
// thread that added it.
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

  // Gives the block a place, where other threads find it from now on. False if all places are taken.
  bool add(Block& block) {
    const size_t first = place_of(block);
    for (size_t tries = 0; tries < kPlaces; ++tries) {
      const size_t place = (first + tries) % kPlaces;
      if (places_[place].load(std::memory_order_relaxed) != kFree) continue;
      block.nursery_place_ = static_cast<uint8_t>(place);  // Set before a thread can find it.
      uintptr_t expected = kFree;
      // In one order with Node::tight. A thread that searches for memory sets it and then reads the places;
      // Operands::adopt() reads it after this store. So that thread finds the block, or adopt() lists it.
      if (places_[place].compare_exchange_strong(expected, word_of(block), std::memory_order_seq_cst))
        return true;
    }
    block.nursery_place_ = Block::kNoPlace;
    return false;
  }

  // Takes the block from its place. False if it has none.
  bool take(Block& block) { return exchange(block, kFree); }

  // Takes every block; returns how many, which are the first entries of `taken`.
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

  // The block ends and is about to free its bytes at `node`: no thread finds it any more, and its place is
  // marked until end_death(). False if it has no place, or another thread has taken it.
  bool begin_death(Block& block, NodeId node) { return exchange(block, mark_of(node)); }
  void end_death(Block& block) { places_[block.nursery_place_].store(kFree, std::memory_order_release); }
  // Whether some block is freeing bytes at the node. After a false answer their memory is free.
  bool any_dying(NodeId node) const {
    for (const std::atomic<uintptr_t>& place : places_) {
      if (place.load(std::memory_order_acquire) == mark_of(node)) return true;
    }
    return false;
  }

 private:
  // A place is free, holds a block's address (which is even), or a mark (odd).
  static constexpr uintptr_t kFree = 0;
  static uintptr_t word_of(const Block& block) { return reinterpret_cast<uintptr_t>(&block); }
  static uintptr_t mark_of(NodeId node) { return index_of(node) * 2 + 1; }
  static bool is_mark(uintptr_t word) { return (word & 1) != 0; }

  // The first place that a block tries. malloc gives a thread the memory again that it freed last, so the
  // thread finds the place that it left; neighbouring blocks have places of their own.
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
