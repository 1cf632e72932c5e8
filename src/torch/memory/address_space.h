// Reserved addresses for handles. They are unique while they are live, and never backed by memory
// (PROT_NONE), so a stray access through a managed tensor's data pointer traps. find() leads from an address
// to the owner of its range.
//
// Addresses are reserved from the system in big chunks and recycled by size class, last in, first out. Two
// live ranges never overlap. A reservation costs only address space. Under a limit (RLIMIT_AS) chunks are
// small, and exhaustion is one c10::OutOfMemoryError with the byte counts.
//
// Thread safety: all methods. Chunks stay mapped until the object is destroyed, and the process's object
// never is. Only free ranges with a mapping of their own are unmapped earlier, when the system has no other
// addresses.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/thread_annotations.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

class IK_EXPORT AddressSpace {
 public:
  AddressSpace();
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  struct Range {
    Range(uintptr_t its_begin, size_t its_size) : begin(its_begin), size(its_size) {}
    void* address() const { return reinterpret_cast<void*>(begin); }

    const uintptr_t begin;
    const size_t size;
    // A word for the owner of the range; null when take() returns it and after give_back().
    std::atomic<void*> owner{nullptr};
  };

  // A range of class_size(size) bytes, aligned to kGranule; nullptr for size 0. Throws c10::OutOfMemoryError.
  Range* take(size_t size);
  // Requires: `range` came from take() and was not given back. nullptr does nothing.
  void give_back(Range* range) noexcept;

  // The range that contains the address, live or not; nullptr if there is none. Locks and searches, so it is
  // for callers that have only an address.
  Range* find(const void* address);
  // The same for a signal handler: returns nullptr if another thread holds the lock for more than 50 ms.
  Range* find_soon(const void* address) noexcept;
  size_t reserved() const;  // Bytes of all chunks.
  size_t live() const;      // Bytes of all live ranges.

  // Size classes: multiples of kGranule up to 16 of them, then 8 sizes for each doubling. A range is at most
  // 1/8 larger than requested.
  static size_t class_size(size_t size) { return size == 0 ? 0 : class_of(size).size; }
  static constexpr size_t kGranule = 512;
  // The ordinal of the size's class, from the smallest class on.
  static size_t class_index(size_t size) { return class_of(size).index; }

 private:
  struct Class {
    size_t index;
    size_t size;
  };
  struct Chunk {
    explicit Chunk(size_t its_size) : size(its_size) {}
    const size_t size;
    std::deque<Range> ranges;  // Ranges by address; a deque, because they must never move.
  };
  using Chunks = std::map<uintptr_t, Chunk>;  // Chunks by their first address.
  // Classes for up to 2^48 bytes, which is more than the address space of a process.
  static constexpr size_t kClasses = 16 + 8 * 35;

  static Class class_of(size_t size);
  Range* search(const void* address) IK_REQUIRES(mutex_);
  Range* carve(size_t size) IK_REQUIRES(mutex_);
  Chunks::value_type* map(size_t size) IK_REQUIRES(mutex_);
  bool unmap_spare() IK_REQUIRES(mutex_);
  [[noreturn]] void throw_exhausted(size_t size) const IK_REQUIRES(mutex_);

  const size_t limit_;  // RLIMIT_AS in bytes; 0 if there is no limit.
  const size_t chunk_size_;
  mutable Mutex mutex_;
  std::array<std::vector<Range*>, kClasses> free_ IK_GUARDED_BY(mutex_);
  Chunks chunks_ IK_GUARDED_BY(mutex_);
  Chunks::value_type* shared_ IK_GUARDED_BY(mutex_) = nullptr;  // Newest shared chunk; null before the first.
  uintptr_t next_ IK_GUARDED_BY(mutex_) = 0;                    // First free address of shared_.
  size_t left_ IK_GUARDED_BY(mutex_) = 0;                       // Free bytes of shared_.
  size_t reserved_ IK_GUARDED_BY(mutex_) = 0;
  size_t live_ IK_GUARDED_BY(mutex_) = 0;
};

// The process's address space for handles. Never destroyed. An access to one of its addresses ends the
// process with an explanation (stray_access.h).
IK_EXPORT AddressSpace& address_space();

}  // namespace innkeeper::torch_layer
