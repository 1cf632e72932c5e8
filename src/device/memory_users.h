// Who may still touch memory that is free, by its address: for allocators that give memory out again in the
// order of one queue alone, as PyTorch's caching allocators do by stream. With it, who is given memory waits
// for its users, and no other caller does.
//
// A range that is free has users of two kinds: events that its last owner named, and, where kernels let
// it go, all that was on the compute queue by then. Kernels that are given it come after the second kind by
// themselves. A piece that is given out may lie across several such ranges or in a part of one. Where the
// last owner names no events, all that is on the compute queue is taken for a user.
//
// Costs one load for each piece until a caller names users or a copy is given memory: what fits moves
// nothing.
//
// Thread safety: all methods. The mutex is a leaf but for questions to events.
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
  // What is to be waited for: events, and what the compute queue had when `number` was counted. 0: nothing.
  struct Users {
    std::vector<Event> events;
    uint64_t number = 0;
  };

  // ---- memory is free, and the allocator does not know it yet
  // What is on the compute queue by now may still touch it.
  void freed(const void* data, Bytes size) IK_EXCLUDES(mutex_);
  // These alone may. False, and nothing is noted, while memory is unmapped or where there is no memory for
  // the note: then the compute queue is to wait for them first.
  bool freed(const void* data, Bytes size, std::span<const Event> users) IK_EXCLUDES(mutex_);

  // ---- memory is given out
  // Those who may still touch it, for a copy or for the compute queue; they are forgotten, unless
  // std::bad_alloc is thrown.
  Users take_for_copy(const void* data, Bytes size) IK_EXCLUDES(mutex_);
  std::vector<Event> take_for_kernel(const void* data, Bytes size) IK_EXCLUDES(mutex_);

  // ---- events of the compute queue
  // To be asked before an event is recorded, and told with it.
  uint64_t number() const { return frees_.load(std::memory_order_seq_cst); }
  void recorded(uint64_t number, Event event) IK_EXCLUDES(mutex_);

  // ---- the allocator gives memory back to the system, and waits for the compute queue alone before it does
  // All that may touch free memory and is no kernel: the compute queue is to wait for it.
  std::vector<Event> begin_unmapping() IK_EXCLUDES(mutex_);
  void end_unmapping() IK_EXCLUDES(mutex_);

  size_t size() const IK_EXCLUDES(mutex_);  // ranges that are known

 private:
  struct Range {
    uintptr_t end;
    Users users;
  };
  // Ranges that are known before those whose users are done are made one with their neighbours.
  static constexpr size_t kFew = 1024;
  // Work that is on the compute queue now.
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
