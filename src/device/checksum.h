// A 64-bit checksum that detects bytes that a disk returns changed. It gives no protection
// against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>

namespace innkeeper {

// Returns the checksum of a whole buffer, or of its parts in order: each part takes the checksum of the parts
// before it. The value depends on the parts' borders and on the build, so it must not leave the process. XXH3
// if its header was present at build time.
uint64_t checksum(const void* data, size_t size, uint64_t before = 0);

// The implementation of checksum() without XXH3: 8 bytes per step, multiplied and rotated.
uint64_t portable_checksum(const void* data, size_t size, uint64_t before = 0);

}  // namespace innkeeper
