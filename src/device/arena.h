// A pool of host memory that serves as a simulated accelerator's memory.
//
// Small blocks (up to kSmall) are carved from slabs and never freed before the end; large ones are mappings
// of their own. A freed block waits on the shelf of its size class. It is handed out again last in, first
// out, so that a use after free shows. Blocks that may still be in use (`busy`) are kept apart, in order.
// Classes are at most 1/8 apart; the accounted size is exactly round_up(size).
//
// The arena keeps no budget. It allocates as much as the system grants; the node's Accountant or the
// accelerator's capacity refuses first. It does not poison.
//
// Thread safety: all methods. Mappings are created and removed, and `settle` runs, with no lock held.
//
// Ownership: all memory is unmapped when the arena is destroyed, live or not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/thread_annotations.h"
#include "base/types.h"
#include "device/mapping.h"

namespace innkeeper {

class Arena {
 public:
  struct Options {
    std::string name = "memory";  // Its name in messages.
    // Limit of the large free blocks that are kept; beyond it the least recently used shelves are
    // emptied to half of it.
    Bytes cache_limit = MiB(512);
    // True: trimmed memory keeps its addresses and loses only its pages, so that a stray write never
    // hits foreign memory.
    bool keep_mapped = false;
    bool blank = false;  // True: addresses alone (Pages::blank).
    // Called before the pages of free blocks are released, with no lock held: after it no work uses the
    // blocks that were busy.
    std::function<void()> settle = {};
  };
  struct Piece {
    void* data;
    bool fresh;  // New pages of the system: zeroed, and never freed before.
  };

  explicit Arena(Options options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Preference among the free pieces of a size class. `newest`: the piece freed last; of the busy ones the
  // first. `oldest`: the busy piece freed first; of the others the first.
  enum class Order : uint8_t { newest, oldest };

  // Requires: size > 0. Aligned to kAlignment. Fails with out_of_memory when the system has no more.
  Result<Piece> allocate(Bytes size, Order order = Order::newest);
  // Requires: `data` came from allocate() and is live. Returns its rounded size.
  Bytes free(void* data, bool busy = false);

  Bytes live() const;                     // Rounded sizes of live blocks, counted block by block.
  Bytes cached() const;                   // Bytes of large free blocks that are kept.
  Bytes size_of(const void* data) const;  // Rounded size; 0 if `data` is not the start of a live block.
  bool contains(const void* data) const;  // True for an address inside any mapping, live or not.
  Bytes trim();                           // Empties the shelves of large blocks; returns the freed bytes.

  static constexpr int64_t kSmall = 64 << 10;
  static constexpr int64_t kSlab = 1 << 20;
  // Returns the bytes really reserved for a rounded size. For tests: at most 1/8 more than requested.
  static Bytes class_size(Bytes rounded);

 private:
  // Number of classes: 8 up to 512 bytes, then 8 per doubling, enough for the 2^47 bytes of a process.
  static constexpr size_t kClasses = 8 + 8 * 39;
  struct Class {
    size_t index;
    int64_t size;
  };
  struct Shelf {
    std::deque<void*> warm;   // Pieces with pages, newest last.
    std::deque<void*> busy;   // The newest last.
    std::vector<void*> cold;  // Trimmed pieces without pages; only with keep_mapped.
    uint64_t last_use = 0;
  };
  struct Block {
    Class size_class;
    int64_t live;  // The rounded size while allocated; 0 on the shelf.
  };
  struct Departing {
    void* data;
    int64_t size;
  };

  Pages pages() const { return options_.blank ? Pages::blank : Pages::ordinary; }
  static Class class_of(int64_t rounded);
  static void* take_warm(Shelf& shelf, Order order);  // Returns null if there is no piece.
  Result<void*> map(int64_t size) IK_EXCLUDES(mutex_);
  void unmap(const std::vector<Departing>& departing) IK_EXCLUDES(mutex_);
  Result<void*> carve(Class wanted) IK_EXCLUDES(mutex_);
  Result<void*> map_or_trim(int64_t size) IK_EXCLUDES(mutex_);
  // Takes large blocks off the shelves until at most `target` bytes are cached.
  void shrink_cache(int64_t target) IK_EXCLUDES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::unordered_map<const void*, Block> blocks_ IK_GUARDED_BY(mutex_);
  std::map<uintptr_t, int64_t> mappings_ IK_GUARDED_BY(mutex_);
  std::array<Shelf, kClasses> shelves_ IK_GUARDED_BY(mutex_);
  int64_t cached_ IK_GUARDED_BY(mutex_) = 0;
  uint64_t tick_ IK_GUARDED_BY(mutex_) = 0;
  std::byte* slab_ IK_GUARDED_BY(mutex_) = nullptr;
  int64_t slab_left_ IK_GUARDED_BY(mutex_) = 0;
};

}  // namespace innkeeper
