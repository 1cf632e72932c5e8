// Host memory in slabs: what the host node's replicas live in.
//
// Slabs of 64 MiB and more are mapped whole, and page-locked whole where a card copies from them: both cost
// more than the copies would, so both are done once. Blocks are cut from them, to the byte that is accounted.
// A block takes the smallest free range that is large enough, of equal ones that at the lowest address; a
// freed one joins its free neighbours. (Best fit wastes least on recorded trainings:
// docs/design/host_memory.md.)
//
// Empty slabs are kept up to a bound, and beyond it as many as were in use together a short while ago: a
// program that fills and empties the host each step locks nothing twice, and what it needed once goes.
//
// What it is not: a budget. It gives what the system gives; the node's Accountant says no first. It does not
// poison, and no caller has to wait before memory is used again: who frees a block is the last to use it.
//
// Thread safety: all methods. Slabs are mapped and unmapped, and hooks run, with no lock held.
//
// Ownership: all memory is unmapped when this is destroyed, live or not.
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
  // Told of each new slab, and before each goes (page-locking for a real accelerator). A slab that `lock`
  // refuses is used all the same; `unlock` is then not called for it. One that `unlock` cannot let go (false)
  // stays mapped and is used no more: at its addresses the accelerator would take other memory for locked.
  struct Hooks {
    std::function<Status(void* data, size_t size)> lock;
    std::function<bool(void* data, size_t size)> unlock;
  };
  struct Options {
    Bytes slab = MiB(64);   // Least size of a slab.
    Bytes keep = MiB(512);  // Empty slabs kept; beyond it those empty longest go, down to half of it.
    // So long, and less than twice as long, the slabs stay that were in use together.
    std::chrono::milliseconds linger{0};
    std::chrono::steady_clock::time_point (*now)() = &std::chrono::steady_clock::now;
    bool blank = false;  // addresses alone (Pages::blank)
    Hooks hooks = {};
  };

  Slabs(std::string name, Options options);
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Requires: size > 0. Aligned to kAlignment; of round_up(size) bytes. Fails with out_of_memory when the
  // system has no more.
  Result<void*> allocate(Bytes size);
  // Requires: `data` came from allocate() and is live. Returns its rounded size.
  Bytes free(void* data);

  Bytes live() const;                     // counted block by block
  Bytes held() const;                     // Bytes of all slabs.
  Bytes size_of(const void* data) const;  // rounded; 0 if `data` is not the start of a live block
  bool contains(const void* data) const;  // inside any slab, live or not
  Bytes trim();                           // gives all empty slabs back; returns how much went
  void tidy();                            // gives back what has lingered long enough

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
  // A live block keeps the entries of the free range that it was, so that to free it allocates nothing.
  struct Block {
    int64_t size = 0;
    Ranges::node_type range = {};
    Sizes::node_type place = {};
  };

  Pages pages() const { return options_.blank ? Pages::blank : Pages::huge; }
  void* cut(int64_t size) IK_REQUIRES(mutex_);  // null if no free range is large enough
  SlabMap::iterator slab_of(uintptr_t address) IK_REQUIRES(mutex_);
  // The slabs that are empty longest, until at most `target` bytes of them are left.
  SlabMap take_empty(int64_t target) IK_REQUIRES(mutex_);
  // Those that are beyond the bound, where `more` bytes are about to be in use.
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
  Sizes by_size_ IK_GUARDED_BY(mutex_);  // the same
  int64_t held_ IK_GUARDED_BY(mutex_) = 0;
  int64_t empty_ IK_GUARDED_BY(mutex_) = 0;  // bytes of empty slabs
  uint64_t tick_ IK_GUARDED_BY(mutex_) = 0;
  // The most bytes of slabs that were in use at a time: since `since_`, and in the time before.
  int64_t most_ IK_GUARDED_BY(mutex_) = 0;
  int64_t most_before_ IK_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point since_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper
