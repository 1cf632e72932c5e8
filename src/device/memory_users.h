// The possible users of free memory, by its address. It serves allocators that reuse memory in the order of
// one queue alone, as PyTorch's caching allocators do by stream. With it, the next owner of memory waits for
// the users, and no other caller does.
//
// A free range has users of two kinds. Its last owner may name events; if kernels released it, all work that
// was on the compute queue by then counts. Kernels that get the memory come after the second kind anyway. An
// allocated piece may span several such ranges or a part of one. If the last owner names no events, all work
// on the compute queue counts as a user.
//
// Costs one load for each piece until a caller names users or a copy gets memory: a program that fits
// moves no blocks.
//
// Thread safety: all methods. The mutex is a leaf, except for queries of events.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/thread_annotations.h"
#include "device/marks.h"

namespace innkeeper {

class MemoryUsers {
 public:
  // Work to wait for: events, and the compute queue's work when `number` was counted. 0: no work.
  struct Users {
    std::vector<Event> events;
    uint64_t number = 0;
  };

  // ---- Memory is free, and the allocator does not know it yet.
  // Work that is on the compute queue by now may still touch the memory.
  void freed(const void* data, Bytes size) IK_EXCLUDES(mutex_);
  // Only `users` may still touch the memory. Returns false, without a note, while memory is unmapped or if
  // the note lacks memory: then the compute queue must wait for the users first.
  bool freed(const void* data, Bytes size, std::span<const Event> users) IK_EXCLUDES(mutex_);

  // ---- Memory is allocated.
  // Returns the users that may still touch the memory, for a copy or for the compute queue. They are
  // forgotten, unless std::bad_alloc is thrown.
  Users take_for_copy(const void* data, Bytes size) IK_EXCLUDES(mutex_);
  std::vector<Event> take_for_kernel(const void* data, Bytes size) IK_EXCLUDES(mutex_);

  // ---- Events of the compute queue.
  // Returns the number to pass to recorded(). Requires: called before the event is recorded.
  uint64_t number() const { return frees_.load(std::memory_order_seq_cst); }
  void recorded(uint64_t number, Event event) IK_EXCLUDES(mutex_);

  // ---- The allocator returns memory to the system, and before that waits only for the compute queue.
  // Returns all users of free memory that are no kernels: the compute queue must wait for them.
  std::vector<Event> begin_unmapping() IK_EXCLUDES(mutex_);
  void end_unmapping() IK_EXCLUDES(mutex_);

  size_t size() const IK_EXCLUDES(mutex_);  // Number of known ranges.

 private:
  struct Range {
    uintptr_t end;
    Users users;
  };
  // Number of ranges from which idle ones are joined with their neighbours.
  static constexpr size_t kFew = 1024;
  // Counts the work that is on the compute queue now, and returns its number.
  uint64_t count() { return frees_.fetch_add(1, std::memory_order_seq_cst) + 1; }

  bool watches() const { return watching_.load(std::memory_order_relaxed); }
  Users cut(const void* data, Bytes size, bool* all_known = nullptr) IK_REQUIRES(mutex_);
  bool add(const void* data, Bytes size, uint64_t number, std::span<const Event> named) IK_REQUIRES(mutex_);
  void join_idle() IK_REQUIRES(mutex_);

  std::atomic<bool> watching_{false};
  std::atomic<uint64_t> frees_{0};
  mutable Mutex mutex_;
  int unmapping_ IK_GUARDED_BY(mutex_) = 0;
  std::map<uintptr_t, Range> ranges_ IK_GUARDED_BY(mutex_);  // By first address; ranges do not overlap.
  size_t many_ IK_GUARDED_BY(mutex_) = kFew;
  Marks marks_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper
