// Who owns which piece of memory, by its address: for allocators whose callers ask that a piece's context is
// its address (raw_allocate, raw_deallocate), so that nothing else can be hung on it.
//
// Thread safety: all methods. In parts with a lock each, since every thread that computes allocates.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/thread_annotations.h"
#include "base/types.h"
#include "torch/process/fork.h"

namespace innkeeper::torch_layer {

template <class Owner>
class AddressTable {
 public:
  // Leaked by its maker: memory is freed at any time, in children of fork() too.
  AddressTable() {
    for (Part& part : parts_) take_at_fork(part.mutex);
  }
  AddressTable(const AddressTable&) = delete;
  AddressTable& operator=(const AddressTable&) = delete;

  // Returns the owner that stood there, if any did.
  std::optional<Owner> insert(void* data, Owner owner) {
    Part& part = part_of(data);
    MutexLock lock(part.mutex);
    const auto [place, fresh] = part.owners.emplace(data, owner);
    if (fresh) return std::nullopt;
    return std::exchange(place->second, owner);
  }
  std::optional<Owner> find(void* data) {
    Part& part = part_of(data);
    MutexLock lock(part.mutex);
    const auto found = part.owners.find(data);
    return found == part.owners.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<Owner> take(void* data) {
    Part& part = part_of(data);
    MutexLock lock(part.mutex);
    const auto found = part.owners.find(data);
    if (found == part.owners.end()) return std::nullopt;
    const Owner owner = found->second;
    part.owners.erase(found);
    return owner;
  }

 private:
  struct Part {
    Mutex mutex;
    ska::flat_hash_map<void*, Owner> owners IK_GUARDED_BY(mutex);
  };
  static constexpr size_t kParts = 32;
  Part& part_of(const void* data) {
    const uint64_t hash = (reinterpret_cast<uintptr_t>(data) / kAlignment) * 0x9E3779B97F4A7C15u;
    return parts_[hash >> 59];
  }
  std::array<Part, kParts> parts_;
};

}  // namespace innkeeper::torch_layer
