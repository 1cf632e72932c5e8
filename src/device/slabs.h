// Host memory in slabs, for the host node's replicas.
//
// Slabs of 64 MiB and more are mapped whole, and page-locked whole if a GPU copies from them. Both cost more
// than the copies would, so both are done once. Blocks are cut from them at exactly the accounted size. A
// block takes the smallest free range that is large enough, of equal ones the one at the lowest address (best
// fit). A freed block joins its free neighbours. (Best fit wastes least on recorded trainings:
// docs/design/host_memory.md.)
//
// Empty slabs are kept up to a bound. Beyond the bound as many are kept as were in use together a short while
// ago. A program that fills and empties the host each step therefore locks no slab twice, and slabs of a
// single peak are freed.
//
// The slabs keep no budget. They allocate as much as the system grants; the node's Accountant refuses
// first. They do not poison. No caller has to wait before memory is used again: the thread that frees a
// block is the last to use it.
//
// Thread safety: all methods. Slabs are mapped and unmapped, and hooks run, with no lock held.
//
// Ownership: all memory is unmapped when this object is destroyed, live or not.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "base/thread_annotations.h"
#include "base/types.h"
#include "device/mapping.h"

namespace innkeeper {

class Slabs {
 public:
  // Called for each new slab, and before each slab is unmapped (page-locking for a real accelerator). A slab
  // that `lock` refuses is used all the same; `unlock` is then not called for it. A slab that `unlock` cannot
  // release (false) stays mapped and is used no more: at its addresses the accelerator would take other
  // memory for locked.
  struct Hooks {
    std::function<Status(void* data, size_t size)> lock;
    std::function<bool(void* data, size_t size)> unlock;
  };
  struct Options {
    Bytes slab = MiB(64);   // Least size of a slab.
    Bytes keep = MiB(512);  // Empty slabs kept; beyond it those empty longest go, down to half of it.
    // Shortest time for which slabs stay that were in use together; the longest is less than twice this.
    std::chrono::milliseconds linger{0};
    std::chrono::steady_clock::time_point (*now)() = &std::chrono::steady_clock::now;
    bool blank = false;  // True: addresses alone (Pages::blank).
    Hooks hooks = {};
  };

  Slabs(std::string name, Options options);
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Returns round_up(size) bytes, aligned to kAlignment. Requires: size > 0. Fails with out_of_memory when
  // the system has no more.
  Result<void*> allocate(Bytes size);
  // Requires: `data` came from allocate() and is live. Returns its rounded size.
  Bytes free(void* data);

  Bytes live() const;                     // Bytes of live blocks, counted block by block.
  Bytes held() const;                     // Bytes of all slabs.
  Bytes size_of(const void* data) const;  // Rounded size; 0 if `data` is not the start of a live block.
  bool contains(const void* data) const;  // True for an address inside any slab, live or not.
  Bytes trim();                           // Unmaps all empty slabs; returns the freed bytes.
  void tidy();                            // Unmaps the slabs that have lingered long enough.

 private:
  struct Slab {
    int64_t size;
    bool locked;
    int64_t live = 0;
    uint64_t emptied = 0;  // Ordinal of the moment when it became empty.
  };
  using SlabMap = std::map<uintptr_t, Slab>;
  using Ranges = std::map<uintptr_t, int64_t>;
  using Sizes = std::set<std::pair<int64_t, uintptr_t>>;
  // A live block keeps the entries of its former free range, so that freeing it allocates no memory.
  struct Block {
    int64_t size = 0;
    Ranges::node_type range = {};
    Sizes::node_type place = {};
  };

  Pages pages() const { return options_.blank ? Pages::blank : Pages::huge; }
  void* cut(int64_t size) IK_REQUIRES(mutex_);  // Returns null if no free range is large enough.
  SlabMap::iterator slab_of(uintptr_t address) IK_REQUIRES(mutex_);
  // Removes the slabs that have been empty longest, until at most `target` bytes of empty slabs are left.
  SlabMap take_empty(int64_t target) IK_REQUIRES(mutex_);
  // Removes the empty slabs beyond the bound, given that `more` bytes are about to be in use.
  SlabMap take_beyond(int64_t more) IK_REQUIRES(mutex_);
  void tidy_for(int64_t more) IK_EXCLUDES(mutex_);
  void note_use() IK_REQUIRES(mutex_);
  void unmap(const SlabMap& departing) IK_EXCLUDES(mutex_);

  const std::string name_;
  const Options options_;
  mutable Mutex mutex_;
  SlabMap slabs_ IK_GUARDED_BY(mutex_);
  std::unordered_map<uintptr_t, Block> blocks_ IK_GUARDED_BY(mutex_);
  Ranges free_ IK_GUARDED_BY(mutex_);
  Sizes by_size_ IK_GUARDED_BY(mutex_);  // The ranges of free_, by size.
  int64_t held_ IK_GUARDED_BY(mutex_) = 0;
  int64_t empty_ IK_GUARDED_BY(mutex_) = 0;  // Bytes of empty slabs.
  uint64_t tick_ IK_GUARDED_BY(mutex_) = 0;
  // Peak of the bytes of slabs in use: since `since_`, and in the interval before.
  int64_t most_ IK_GUARDED_BY(mutex_) = 0;
  int64_t most_before_ IK_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point since_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper
