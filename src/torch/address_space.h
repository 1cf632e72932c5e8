// Reserved addresses for handles: unique while they are live, and never backed by memory (PROT_NONE), so that
// a stray dereference of a managed tensor's data pointer traps (decision 1).
//
// Addresses are reserved from the system in big chunks and recycled by size class, last in, first out. Two
// live ranges never overlap. Reserving costs address space alone; where that is limited (RLIMIT_AS) chunks
// are small, and running out is one c10::OutOfMemoryError with the numbers.
//
// Thread safety: all methods. Chunks are never unmapped before the end of the object, which the process's
// never reaches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

  // A range of class_size(size) bytes, aligned to kGranule; nullptr for size 0. Throws c10::OutOfMemoryError.
  void* take(size_t size);
  // Requires: `address` came from take(size) with a size of the same class, and is live.
  void give_back(void* address, size_t size) noexcept;

  // Whether the address lies in any chunk, live or not.
  bool contains(const void* address) const;
  size_t reserved() const;  // bytes of all chunks
  size_t live() const;      // bytes of all live ranges

  // Multiples of kGranule up to 16 of them, then 8 sizes for each doubling: at most 1/8 more than asked.
  static size_t class_size(size_t size) { return size == 0 ? 0 : class_of(size).size; }
  static constexpr size_t kGranule = 512;

 private:
  struct Class {
    size_t index;
    size_t size;
  };
  struct Chunk {
    uintptr_t begin;
    size_t size;
  };
  // Up to 2^48 bytes: more than a process has addresses.
  static constexpr size_t kClasses = 16 + 8 * 35;

  static Class class_of(size_t size);
  void* carve(size_t size) IK_REQUIRES(mutex_);
  void* map(size_t size) IK_REQUIRES(mutex_);
  bool unmap_spare() IK_REQUIRES(mutex_);
  [[noreturn]] void throw_exhausted(size_t size) const IK_REQUIRES(mutex_);

  const size_t limit_;  // RLIMIT_AS; 0 if there is none
  const size_t chunk_size_;
  mutable Mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_ IK_GUARDED_BY(mutex_);
  std::vector<Chunk> chunks_ IK_GUARDED_BY(mutex_);
  uintptr_t next_ IK_GUARDED_BY(mutex_) = 0;  // what is left of the newest shared chunk
  size_t left_ IK_GUARDED_BY(mutex_) = 0;
  size_t reserved_ IK_GUARDED_BY(mutex_) = 0;
  size_t live_ IK_GUARDED_BY(mutex_) = 0;
};

// The process's, for handles. Never destroyed.
IK_EXPORT AddressSpace& address_space();

}  // namespace innkeeper::torch_layer
