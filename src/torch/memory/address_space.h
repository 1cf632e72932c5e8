// Reserved addresses for handles: unique while they are live, and never backed by memory (PROT_NONE), so that
// a stray dereference of a managed tensor's data pointer traps. An address leads back to who has
// the range that it lies in.
//
// Addresses are reserved from the system in big chunks and recycled by size class, last in, first out. Two
// live ranges never overlap. Reserving costs address space alone; where that is limited (RLIMIT_AS) chunks
// are small, and running out is one c10::OutOfMemoryError with the numbers.
//
// Thread safety: all methods. Chunks are never unmapped before the end of the object, which the process's
// never reaches.
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
    // A word for the owner of the range; null when it is taken, and again when it is given back.
    std::atomic<void*> owner{nullptr};
  };

  // A range of class_size(size) bytes, aligned to kGranule; nullptr for size 0. Throws c10::OutOfMemoryError.
  Range* take(size_t size);
  // Requires: `range` came from take() and was not given back. nullptr does nothing.
  void give_back(Range* range) noexcept;

  // The range that the address lies in, live or not; nullptr if there is none. Takes the lock and searches:
  // for those who have nothing but an address.
  Range* find(const void* address);
  // The same for a signal's handler: gives up (nullptr) where another thread keeps the lock for long.
  Range* find_soon(const void* address) noexcept;
  size_t reserved() const;  // bytes of all chunks
  size_t live() const;      // bytes of all live ranges

  // Multiples of kGranule up to 16 of them, then 8 sizes for each doubling: at most 1/8 more than asked.
  static size_t class_size(size_t size) { return size == 0 ? 0 : class_of(size).size; }
  static constexpr size_t kGranule = 512;
  // The ordinal of the class, from the least on.
  static size_t class_index(size_t size) { return class_of(size).index; }

 private:
  struct Class {
    size_t index;
    size_t size;
  };
  struct Chunk {
    explicit Chunk(size_t its_size) : size(its_size) {}
    const size_t size;
    std::deque<Range> ranges;  // by address, and never moved
  };
  using Chunks = std::map<uintptr_t, Chunk>;  // by where they begin
  // Up to 2^48 bytes: more than a process has addresses.
  static constexpr size_t kClasses = 16 + 8 * 35;

  static Class class_of(size_t size);
  Range* search(const void* address) IK_REQUIRES(mutex_);
  Range* carve(size_t size) IK_REQUIRES(mutex_);
  Chunks::value_type* map(size_t size) IK_REQUIRES(mutex_);
  bool unmap_spare() IK_REQUIRES(mutex_);
  [[noreturn]] void throw_exhausted(size_t size) const IK_REQUIRES(mutex_);

  const size_t limit_;  // RLIMIT_AS; 0 if there is none
  const size_t chunk_size_;
  mutable Mutex mutex_;
  std::array<std::vector<Range*>, kClasses> free_ IK_GUARDED_BY(mutex_);
  Chunks chunks_ IK_GUARDED_BY(mutex_);
  Chunks::value_type* shared_ IK_GUARDED_BY(mutex_) =
      nullptr;  // the newest shared chunk, and what is left of it
  uintptr_t next_ IK_GUARDED_BY(mutex_) = 0;
  size_t left_ IK_GUARDED_BY(mutex_) = 0;
  size_t reserved_ IK_GUARDED_BY(mutex_) = 0;
  size_t live_ IK_GUARDED_BY(mutex_) = 0;
};

// The process's, for handles. Never destroyed. Who reads such an address is told what it is (stray_access.h).
IK_EXPORT AddressSpace& address_space();

}  // namespace innkeeper::torch_layer
