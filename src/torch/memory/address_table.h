// Owners of pieces of memory, by address. For allocators whose callers require that a piece's context is its
// address (raw_allocate, raw_deallocate), which leaves no other place for the owner.
//
// Thread safety: all methods. The table has several parts with a lock each, because every computing thread
// allocates.
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
  // Requires: never destroyed, because memory is freed at any time, also in children of fork().
  AddressTable() {
    for (Part& part : parts_) take_at_fork(part.mutex);
  }
  AddressTable(const AddressTable&) = delete;
  AddressTable& operator=(const AddressTable&) = delete;

  // Returns the previous owner of the address, if there was one.
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
